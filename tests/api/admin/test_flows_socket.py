"""Event and log streams through the front to a strict fake of Prefect's server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from api.front import WEBSOCKET_BYTES
from infra.prefect_address import PrefectAddress
from tests.api.admin.operators import Operator, operator
from tests.fakes_prefect import AUTHORIZATION

EVENTS = "/flows/api/events/out"
FILTER = '{"type": "filter", "filter": {}}'


@contextlib.asynccontextmanager
async def opened(
    admin: Operator, path: str = EVENTS, headers: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A WebSocket of a browser that has logged in, unless headers say otherwise."""
    given = admin.browser() if headers is None else headers
    async with admin.session.ws_connect(URL(admin.url + path, encoded=True), headers=given, **options) as socket:
        yield socket


async def refused(admin: Operator, headers: dict[str, str], path: str = EVENTS) -> int:
    """The status that a WebSocket is refused with."""
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        async with opened(admin, path, headers):
            pass
    return caught.value.status


async def until(admin: Operator, count: int) -> list[str]:
    async with asyncio.timeout(3):
        while len(admin.prefect.heard) < count:
            await asyncio.sleep(0.01)
    return admin.prefect.heard


@pytest.mark.parametrize("path", ["/flows/api/events/out", "/flows/api/events/in", "/flows/api/logs/out"])
async def test_a_page_of_ours_speaks_at_once(admin: Operator, path: str) -> None:
    """It has no key: the front has let it in with its own."""
    async with opened(admin, path) as socket:
        await socket.send_str(FILTER)
        assert await socket.receive_str(timeout=20) == f"heard {FILTER}"
        assert socket.protocol is None
    assert admin.prefect.heard == [FILTER]


async def test_a_client_of_prefects_says_its_own_key_which_stays_here(admin: Operator) -> None:
    async with opened(admin, headers=admin.bearer(), protocols=("prefect",)) as socket:
        assert socket.protocol == "prefect"
        await socket.send_json({"type": "auth", "token": admin.keys["admin"]})
        assert await socket.receive_json(timeout=20) == {"type": "auth_success"}
        await socket.send_str(FILTER)
        await socket.receive_str(timeout=20)
    assert await until(admin, 1) == [FILTER]


async def test_only_an_admin_and_no_other_sites_page(admin: Operator) -> None:
    assert await refused(admin, {}) == 401
    assert await refused(admin, admin.bearer("user")) == 403
    assert await refused(admin, admin.bearer("node")) == 403
    assert await refused(admin, {"Authorization": "Bearer sk-wrong"}) == 401
    assert await refused(admin, admin.browser(Origin="http://evil.example")) == 403
    assert await refused(admin, admin.browser(Origin="null")) == 403
    assert await refused(admin, admin.bearer() | {"Origin": "http://evil.example"}) == 403
    unproven = admin.browser()
    del unproven["Origin"]
    assert await refused(admin, unproven) == 403
    assert await refused(admin, {"Cookie": admin.browser()["Cookie"] + "x", "Origin": admin.origin}) == 401
    assert admin.prefect.seen == []


@pytest.mark.parametrize(
    "path",
    [
        "/flows/api/work_pools/cpu/workers/connect",
        "/flows/api/task_runs/subscriptions/scheduled",
        "/flows/api/flow_runs/filter",
        "/flows/api/events/%2e%2e/events/out",
        "/flows/",
        "/admin",
        "/login",
    ],
)
async def test_there_are_no_other_streams(admin: Operator, path: str) -> None:
    assert await refused(admin, admin.bearer(), path) == 404
    assert admin.prefect.seen == []


async def test_a_client_that_leaves_ends_the_stream_behind(admin: Operator) -> None:
    async with opened(admin) as socket:
        await socket.send_str(FILTER)
        await until(admin, 1)
    async with opened(admin) as socket:
        await socket.send_str(FILTER)
        await until(admin, 2)
        assert socket._response.connection is not None
        socket._response.connection.transport.abort()  # type: ignore[union-attr]  # a cable that is pulled
        async with asyncio.timeout(3):
            while len(admin.prefect.closed) < 2:
                await asyncio.sleep(0.01)


async def test_the_servers_end_and_its_reason_arrive(admin: Operator) -> None:
    async with opened(admin) as socket:
        await socket.send_str(FILTER)
        await socket.receive_str(timeout=20)
        await admin.prefect.sockets[0].close(code=1002)
        assert (await socket.receive(timeout=20)).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1002


async def test_a_server_that_dies_is_said_so(admin: Operator) -> None:
    async with opened(admin) as socket:
        await socket.send_str(FILTER)
        await socket.receive_str(timeout=20)
        request = admin.prefect.sockets[0]._req
        assert request is not None
        assert request.transport is not None
        request.transport.abort()
        await socket.receive(timeout=20)
        assert socket.close_code == 1011


async def test_a_stream_ends_with_the_key_it_was_opened_with(admin: Operator) -> None:
    async with opened(admin) as by_cookie, opened(admin, headers=admin.bearer()) as by_key:
        admin.revoke()
        for socket in (by_cookie, by_key):
            await socket.receive(timeout=2)
            assert socket.close_code == 1008


async def test_messages_are_text_and_not_without_end(admin: Operator) -> None:
    async with opened(admin) as socket:
        await socket.send_bytes(b"x")
        await socket.receive(timeout=20)
        assert socket.close_code == 1003
    async with opened(admin) as socket:
        await socket.send_str("x" * (WEBSOCKET_BYTES + 1))
        await socket.receive(timeout=20)
        assert socket.close_code == 1009
    async with opened(admin) as socket:
        for text in ("x" * WEBSOCKET_BYTES, '["auth"]', "{"):
            await socket.send_str(text)
        assert [len(text) for text in await until(admin, 3)] == [WEBSOCKET_BYTES, 8, 1]


async def test_a_server_that_is_not_there(tmp_path: Path, unused_tcp_port: int) -> None:
    address = PrefectAddress(AUTHORIZATION, None)
    async with operator(tmp_path / "home", address) as admin:
        assert await refused(admin, admin.bearer()) == 503
        address.url = f"http://127.0.0.1:{unused_tcp_port}"
        assert await refused(admin, admin.bearer()) == 503
        address.url = admin.prefect.url
        admin.prefect.password = "coderai:other"
        assert await refused(admin, admin.bearer()) == 503
