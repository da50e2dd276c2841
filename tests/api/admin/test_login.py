"""The login page: by form, by JSON, what it refuses, and where it leads."""

import json
import re
from pathlib import Path

import pytest

from api.admin.login import local_path
from api.admin.sessions import COOKIE
from tests.api.admin.operators import HTML, Operator, operator


@pytest.mark.parametrize(
    "path",
    ["/flows/", "/flows", "/flows/runs/flow-run/0f?tab=Logs&x=%2F", "/flows?x=1", "/admin", "/admin/runs/0f/answer"],
)
def test_our_own_pages_are_gone_to(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/flows/",
        "//evil.example/flows/",
        "/\\evil.example",
        "/flows\\..\\x",
        "/flows.evil.example/",
        "/flows@evil.example",
        "/flowsx",
        "javascript:alert(1)//flows/",
        "/flows/\r\nSet-Cookie: a=b",
        "/flows/\t/x",
        "/flows/é",
        " /flows/",
        "/login",
        "/v1/models",
        "",
        "/flows/" + "a" * 3000,
    ],
)
def test_no_other_place_is_gone_to(path: str) -> None:
    assert local_path(path) == "/flows/"


async def test_a_person_logs_in_by_the_form_and_out_again(tmp_path: Path) -> None:
    async with operator(tmp_path / "home") as site:
        first = await site.get("/flows/runs?a=1&b=2", HTML)
        assert (first.status, first.headers["Location"]) == (303, "/login?next=%2Fflows%2Fruns%3Fa%3D1%26b%3D2")
        page = await site.get(first.headers["Location"], HTML)
        assert page.status == 200
        assert 'name="next" value="/flows/runs?a=1&amp;b=2"' in page.text
        assert 'autocomplete="current-password"' in page.text
        assert "<script" not in page.text
        form = {"username": "admin", "key": f" {site.keys['admin']}\n", "next": "/flows/runs?a=1&b=2"}
        done = await site.ask("POST", "/login", {"Origin": site.origin}, form)
        assert (done.status, done.headers["Location"]) == (303, "/flows/runs?a=1&b=2")
        set_cookie = done.headers["Set-Cookie"]
        assert re.fullmatch(rf"{COOKIE}=[\w.-]+; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict", set_cookie)
        assert site.keys["admin"] not in set_cookie
        site.cookie = set_cookie.partition(";")[0].partition("=")[2]
        assert (await site.get("/flows/", site.browser())).status == 200
        again = await site.get("/login?next=/flows/x", site.browser())
        assert (again.status, again.headers["Location"]) == (303, "/flows/x")
        assert "<form" in (await site.get("/logout", site.browser())).text
        out = await site.ask("POST", "/logout", site.browser())
        assert (out.status, out.headers["Location"]) == (303, "/login")
        assert f"{COOKIE}=; Path=/; Max-Age=0" in out.headers["Set-Cookie"]


async def test_a_script_logs_in_by_json(admin: Operator) -> None:
    body = json.dumps({"key": admin.keys["admin"], "next": "//evil.example/"})
    done = await admin.ask("POST", "/login", {"Content-Type": "application/json"}, body)
    assert (done.status, json.loads(done.body)) == (200, {"key": "admin", "next": "/flows/"})
    assert done.headers["Set-Cookie"].startswith(f"{COOKIE}=")
    for bad, status in ((b"{", 400), (b"[]", 400), (b"{}", 400), (b'{"key": 1}', 400), (b'{"key": "x"}', 401)):
        answer = await admin.ask("POST", "/login", {"Content-Type": "application/json"}, bad)
        assert answer.status == status
        assert "error" in json.loads(answer.body)
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    ("key", "status"), [("user", 403), ("node", 403), ("none", 401), ("internal", 401), ("é\x00", 401)]
)
async def test_a_key_that_is_no_admins_logs_nobody_in(admin: Operator, key: str, status: int) -> None:
    secret = {"none": "", "internal": "internal-token"}.get(key, admin.keys.get(key, key))
    answer = await admin.ask("POST", "/login", None, {"key": secret, "next": "/flows/x"})
    assert answer.status == status
    assert "Set-Cookie" not in answer.headers
    assert 'role="alert"' in answer.text
    assert 'value="/flows/x"' in answer.text
    assert not secret or secret not in answer.text


async def test_many_tries_wait(admin: Operator) -> None:
    for _ in range(10):
        assert (await admin.ask("POST", "/login", None, {"key": "x"})).status == 401
    late = await admin.ask("POST", "/login", None, {"key": "x"})
    assert late.status == 429
    assert 1 <= int(late.headers["Retry-After"]) <= 60


async def test_whoever_tries_from_the_same_address_locks_no_admin_out(admin: Operator) -> None:
    """Behind a TLS proxy everybody comes from one address."""
    for _ in range(12):
        await admin.ask("POST", "/login", None, {"key": "x"})
    assert (await admin.ask("POST", "/login", None, {"key": admin.keys["admin"]})).status == 303
    assert (await admin.get("/flows/", admin.browser())).status == 200  # who is in stays in


async def test_another_site_logs_nobody_in_or_out(admin: Operator) -> None:
    evil = {"Origin": "http://evil.example"}
    for path in ("/login", "/logout"):
        answer = await admin.ask(
            "POST", path, evil | {"Cookie": f"{COOKIE}={admin.cookie}"}, {"key": admin.keys["admin"]}
        )
        assert answer.status == 403
        assert "Set-Cookie" not in answer.headers
    body = json.dumps({"key": admin.keys["admin"]})
    json_answer = await admin.ask("POST", "/login", evil | {"Content-Type": "application/json"}, body)
    assert json_answer.status == 403


async def test_the_cookie_is_for_https_where_that_is_how_one_comes(admin: Operator) -> None:
    given = {"X-Forwarded-Proto": "https"}
    assert (
        (await admin.ask("POST", "/login", given, {"key": admin.keys["admin"]}))
        .headers["Set-Cookie"]
        .endswith("; Secure")
    )


async def test_after_another_sites_link_the_browser_comes_once_more(admin: Operator) -> None:
    """A browser withholds a strict cookie there."""
    page = await admin.get("/login?next=/flows/x", HTML | {"Sec-Fetch-Site": "cross-site"})
    assert '<meta http-equiv="refresh" content="0; url=/flows/x">' in page.text
    back = await admin.get("/login?next=/flows/x", HTML | {"Sec-Fetch-Site": "same-origin"})
    assert "<form" in back.text


async def test_what_else_the_two_pages_are_asked(admin: Operator) -> None:
    for path in ("/login", "/logout"):
        answer = await admin.ask("PUT", path)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD, POST")
        assert (await admin.ask("HEAD", path)).body == b""
    assert (await admin.ask("POST", "/login", None, b"key=" + b"x" * 20_000)).status == 413
    assert (await admin.get("/login?next=//evil.example", {})).text.count('value="/flows/"') == 1
    assert (await admin.ask("POST", "/login", None, b"&=;%zz")).status == 401
