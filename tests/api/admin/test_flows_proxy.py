"""The UI and API under /flows, through the front to a strict fake of Prefect's server."""

import asyncio
import hashlib
import io
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.prefect_address import PrefectAddress
from tests.api.admin.operators import HTML, Operator, operator
from tests.fakes_prefect import AUTHORIZATION, SCRIPT

DOWNLOAD = "/flows/api/flow_runs/0f/logs/download"


async def test_the_ui_comes_with_its_rules(admin: Operator) -> None:
    page = await admin.get("/flows/", admin.browser(**HTML))
    assert (page.status, page.text) == (200, "<html>ui</html>")
    policy = page.headers["Content-Security-Policy"]
    assert f"connect-src 'self' ws://127.0.0.1:{admin.port} wss://127.0.0.1:{admin.port};" in policy
    assert "default-src 'self'" in policy
    assert "script-src 'self' 'unsafe-eval';" in policy
    assert "frame-ancestors 'self'" in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "same-origin"
    assert page.headers["Cache-Control"] == "private, no-cache"
    for never in ("Set-Cookie", "Access-Control-Allow-Origin", "X-Hop", "Server"):
        assert never not in page.headers
    assert len(page.headers.getall("Date", ["one"])) == 1


async def test_a_host_that_is_none_gets_into_no_policy(admin: Operator) -> None:
    page = await admin.get("/flows/", admin.bearer() | {"Host": "x; script-src *"})
    assert "script-src *" not in page.headers["Content-Security-Policy"]
    assert "connect-src 'self';" in page.headers["Content-Security-Policy"]


async def test_links_into_the_ui_work_for_people_and_assets_for_browsers(admin: Operator) -> None:
    for path in ("/flows/runs/flow-run/0f", "/flows/v2/runs/flow-run/0f?tab=Logs"):
        assert (await admin.get(path, admin.browser(**HTML))).text == "<html>ui</html>"
    assert (await admin.get("/flows/runs/flow-run/0f", admin.browser())).status == 404
    assert (await admin.get("/flows/favicon.ico", admin.browser())).status == 404
    plain = await admin.get("/flows/assets/app.js", admin.browser())
    assert plain.body == SCRIPT
    zipped = await admin.get("/flows/assets/app.js", admin.browser(Accept_Encoding="gzip, br"))
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert len(zipped.body) < len(SCRIPT)
    known = await admin.get("/flows/assets/app.js", admin.browser(If_None_Match='"js"'))
    assert (known.status, known.body) == (304, b"")


async def test_the_ui_is_told_that_it_needs_no_password(admin: Operator) -> None:
    answer = await admin.get("/flows/ui-settings", admin.browser(Accept_Encoding="gzip"))
    settings = json.loads(answer.body)
    assert settings["auth"] is None
    assert settings["api_url"] == "/flows/api"
    assert int(answer.headers["Content-Length"]) == len(answer.body)
    assert "ETag" not in answer.headers
    assert admin.prefect.last.headers["accept-encoding"] == "identity"
    assert (await admin.ask("HEAD", "/flows/ui-settings", admin.browser())).status == 200


async def test_the_api_gets_our_key_and_never_the_callers(admin: Operator) -> None:
    for headers in (admin.bearer(), admin.browser(X_Forwarded_For="1.2.3.4", Referer=admin.origin + "/flows/")):
        answer = await admin.ask("POST", "/flows/api/flow_runs/filter?a=%2F", headers, b'{"limit": 1}')
        assert (answer.status, answer.body) == (200, b"[]")
        assert answer.headers["Cache-Control"] == "no-store"
        assert admin.prefect.last.headers["authorization"] == AUTHORIZATION
        assert (admin.prefect.last.body, admin.prefect.last.query) == (b'{"limit": 1}', "a=/")
    chosen = admin.browser()
    chosen["Cookie"] += "; prefect_ui_version=v1"
    await admin.get("/flows/", chosen)
    assert admin.prefect.last.headers["cookie"] == "prefect_ui_version=v1"


async def test_methods_and_redirects(admin: Operator) -> None:
    head = await admin.ask("HEAD", "/flows/", admin.bearer())
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", "15")
    assert (await admin.ask("OPTIONS", "/flows/api/flow_runs/filter", admin.bearer())).status == 405
    assert (await admin.ask("DELETE", "/flows/api/flow_runs/filter", admin.bearer())).status == 405
    moved = await admin.ask("POST", "/flows/api/flow_runs?a=b", admin.bearer(), b"{}")
    assert (moved.status, moved.headers["Location"]) == (307, "/flows/api/flow_runs/?a=b")


async def test_a_large_body_passes_as_it_comes_and_a_larger_one_not(tmp_path: Path) -> None:
    async with operator(tmp_path / "home", server={"max_body_mb": 2}) as admin:
        body = os.urandom(2 * 2**20)
        digest = {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}

        async def parts(extra: bytes = b"") -> AsyncIterator[bytes]:
            for start in range(0, len(body), 100_000):
                yield body[start : start + 100_000]
            yield extra

        for data in (io.BytesIO(body), parts()):
            answer = await admin.ask("POST", "/flows/api/logs/", admin.bearer(), data)
            assert (answer.status, json.loads(answer.body)) == (201, digest)
        assert admin.prefect.last.headers["transfer-encoding"] == "chunked"
        for data in (io.BytesIO(body + b"x"), parts(b"x")):
            answer = await admin.ask("POST", "/flows/api/logs/", admin.bearer(), data)
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (413, "payload_too_large")


async def test_a_large_answer_is_passed_on_only_as_fast_as_it_is_read(admin: Operator) -> None:
    admin.prefect.download_bytes = 80 * 2**20
    async with admin.session.get(admin.url + DOWNLOAD, headers=admin.bearer()) as answer:
        await answer.content.readexactly(1000)
        last = -1
        while admin.prefect.sent_bytes != last:
            last = admin.prefect.sent_bytes
            await asyncio.sleep(0.3)
        assert last < 40 * 2**20
        size = 1000 + sum([len(part) async for part in answer.content.iter_any()])
    assert size == admin.prefect.sent_bytes >= 80 * 2**20


async def test_a_client_that_leaves_ends_the_request(admin: Operator) -> None:
    admin.prefect.endless = True
    async with admin.session.get(admin.url + DOWNLOAD, headers=admin.bearer()) as answer:
        await answer.content.readexactly(1000)
        answer.close()
    await asyncio.wait_for(admin.prefect.left.wait(), 2)


async def test_a_client_that_leaves_in_its_own_body_ends_the_request(admin: Operator) -> None:
    _reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
    key = admin.bearer()["Authorization"].encode()
    head = b"POST /flows/api/logs/ HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\nContent-Length: 1000\r\n\r\nabc"
    writer.write(head % key)
    await asyncio.sleep(0.2)
    writer.close()
    await writer.wait_closed()
    await asyncio.sleep(0.2)
    assert (await admin.get("/flows/")).status == 200


async def test_an_answer_that_breaks_off_breaks_off(admin: Operator) -> None:
    _reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
    key = admin.bearer()["Authorization"].encode()
    writer.write(b"GET /flows/api/flow_runs/0f/broken HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\n\r\n" % key)
    got = await asyncio.wait_for(_reader.read(), 5)
    assert b"[1, 2" in got
    assert not got.endswith(b"0\r\n\r\n")
    writer.close()


@pytest.mark.parametrize(
    "path", ["/flows/%2e%2e/admin", "/flows/%252e%252e/x", "/flows/..%5cx", "/flows/a%2f..%2f..%2fb"]
)
async def test_tricks_with_paths_go_nowhere(admin: Operator, path: str) -> None:
    assert (await admin.get(path)).status == 400
    assert admin.prefect.seen == []


async def test_what_is_closed_stays_closed(admin: Operator) -> None:
    for path in ("/flows/api/admin/database/clear", "/flows/api/coderai/record", "/flows/%61pi/admin/database/drop"):
        answer = await admin.ask("POST", path, admin.bearer(), b"{}")
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, "closed_here")
    assert admin.prefect.seen == []
    assert json.loads((await admin.get("/flows/api/admin/version")).body) == "3.9.1"


async def test_a_server_that_is_not_there_is_waited_for(tmp_path: Path, unused_tcp_port: int) -> None:
    address = PrefectAddress(AUTHORIZATION, None, "its database is <locked>")
    async with operator(tmp_path / "home", address) as admin:
        for url in (None, f"http://127.0.0.1:{unused_tcp_port}"):
            address.url = url
            page = await admin.get("/flows/runs", admin.bearer() | HTML)
            assert (page.status, page.headers["Retry-After"]) == (503, "2")
            assert '<meta http-equiv="refresh" content="2">' in page.text
            assert ("&lt;locked&gt;" in page.text) is (url is None)
            answer = await admin.get("/flows/api/flow_runs/0f", admin.bearer() | HTML)
            assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
            assert json.loads(answer.body)["error"]["code"] == "flows_unavailable"
        address.url = admin.prefect.url
        assert (await admin.get("/flows/")).status == 200


async def test_a_server_that_does_not_take_our_key_is_no_login_of_the_clients(admin: Operator) -> None:
    admin.prefect.password = "coderai:other"
    answer = await admin.get("/flows/api/flow_runs/0f")
    assert answer.status == 503
    assert "WWW-Authenticate" not in answer.headers
