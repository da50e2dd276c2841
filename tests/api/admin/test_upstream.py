"""What passes between a client and the flow-run server, and what stays on either side."""

from types import SimpleNamespace
from typing import Any

import pytest

from api.admin.upstream import Upstream, relative
from infra.errors import FlowsUnavailable, NotFound
from infra.prefect_address import PrefectAddress
from tests.fakes_prefect import AUTHORIZATION, TOKEN

UP = PrefectAddress(AUTHORIZATION, "http://127.0.0.1:4200")


def test_where_it_is() -> None:
    assert str(Upstream(UP).url("/flows/a%2520b", b"x=%2F&y")) == "http://127.0.0.1:4200/flows/a%2520b?x=%2F&y"
    assert str(Upstream(UP).url("/flows/", b"")) == "http://127.0.0.1:4200/flows/"
    assert Upstream(UP).token == TOKEN
    with pytest.raises(NotFound, match="switched off"):
        Upstream(None).require()
    with pytest.raises(FlowsUnavailable, match="not up: it crashed") as caught:
        Upstream(PrefectAddress(AUTHORIZATION, None, "it crashed")).url("/flows/", b"")
    assert caught.value.retry_after_s == 2


def test_a_request_goes_on_with_our_key_and_without_the_clients() -> None:
    passed = Upstream(UP).request_headers(
        [
            (b"host", b"box"),
            (b"authorization", b"Bearer sk"),
            (b"cookie", b"coderai_session=s; prefect_ui_version=v1"),
            (b"origin", b"http://box"),
            (b"referer", b"http://box/flows/"),
            (b"x-forwarded-for", b"1.2.3.4"),
            (b"forwarded", b"for=1.2.3.4"),
            (b"expect", b"100-continue"),
            (b"connection", b"keep-alive, X-Mine"),
            (b"x-mine", b"1"),
            (b"te", b"trailers"),
            (b"upgrade", b"h2c"),
            (b"accept", b"text/html"),
            (b"x-prefect-api-version", b"0.8.4"),
            (b"user-agent", "é".encode()),
        ]
    )
    assert dict(passed) == {
        "Authorization": AUTHORIZATION,
        "Cookie": "prefect_ui_version=v1",
        "accept": "text/html",
        "x-prefect-api-version": "0.8.4",
        "user-agent": "é",
    }


@pytest.mark.parametrize(
    "cookie", [b"prefect_ui_version=v3", b"xprefect_ui_version=v1", b"prefect_ui_version=v1x", b""]
)
def test_no_other_cookie_goes_on(cookie: bytes) -> None:
    assert "Cookie" not in Upstream(UP).request_headers([(b"cookie", cookie)])


def test_an_answer_comes_without_what_is_not_for_the_client() -> None:
    raw = [
        (b"Content-Type", b"text/html"),
        (b"Content-Length", b"5"),
        (b"Content-Encoding", b"gzip"),
        (b"ETag", b'"x"'),
        (b"Set-Cookie", b"a=b"),
        (b"Access-Control-Allow-Origin", b"*"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Connection", b"close, X-Hop"),
        (b"X-Hop", b"1"),
        (b"Server", b"uvicorn"),
        (b"Cache-Control", b"public"),
    ]
    kept = [(b"content-type", b"text/html"), (b"content-encoding", b"gzip"), (b"etag", b'"x"')]
    answer: Any = SimpleNamespace(raw_headers=raw, status=200, headers={})
    assert sorted(Upstream(UP).answer_headers(answer)) == sorted([*kept, (b"content-length", b"5")])
    empty: Any = SimpleNamespace(raw_headers=raw, status=304, headers={})
    assert sorted(Upstream(UP).answer_headers(empty)) == sorted(kept)


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("http://127.0.0.1:4200/flows/v2/?a=b", "/flows/v2/?a=b"),
        ("/flows/v2/", "/flows/v2/"),
        ("//evil.example/flows/x", "/flows/x"),
        ("https://evil.example/", "/flows/"),
        ("http://x//flows/y", "/flows/y"),
        ("/login", "/flows/"),
        ("", "/flows/"),
    ],
)
def test_a_redirect_stays_below_flows(location: str, target: str) -> None:
    assert relative(location) == target
    headers = [(b"Location", location.encode())]
    answer: Any = SimpleNamespace(raw_headers=headers, status=307, headers={"Location": location})
    assert Upstream(UP).answer_headers(answer) == [(b"location", target.encode())]


async def test_one_session_opened_when_it_is_needed() -> None:
    upstream = Upstream(UP)
    await upstream.aclose()
    session = upstream.session
    assert session is upstream.session
    # Streams last: with a bound, so many open pages would keep everybody else waiting for ever.
    assert session.connector is not None
    assert session.connector.limit == 0
    await upstream.aclose()
    assert session.closed
