"""Our own pages: nothing in them runs, and nothing that was given gets out of its place."""

import base64
import hashlib
import re

import pytest

from api.admin import pages

EVIL = "\"'><script>alert(1)</script>&"


@pytest.mark.parametrize(
    "page",
    [
        pages.login_page(EVIL, EVIL),
        pages.logout_page(),
        pages.once_more_page(EVIL),
        pages.waiting_page(EVIL),
        pages.message_page(EVIL, EVIL),
    ],
)
def test_pages_are_plain_and_their_style_is_the_one_allowed(page: bytes) -> None:
    text = page.decode()
    assert text.startswith("<!doctype html>")
    assert "<script" not in text
    assert not re.search(r" (src|style|on\w+)=", text)
    style = re.search(r"<style>(.*)</style>", text)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = dict(pages.HEADERS)[b"content-security-policy"].decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "frame-ancestors 'none'" in policy


def test_the_waiting_page_looks_again_by_itself() -> None:
    text = pages.waiting_page("it is <starting>").decode()
    assert '<meta http-equiv="refresh" content="2">' in text
    assert "it is &lt;starting&gt;" in text


def test_a_form_says_where_it_was_sent_from() -> None:
    """With no-referrer a browser would send `Origin: null`."""
    assert dict(pages.HEADERS)[b"referrer-policy"] == b"same-origin"
