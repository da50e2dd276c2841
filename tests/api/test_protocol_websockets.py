"""WebSockets on the HTTP protocol's port: handed over, declined, or refused in words."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from api.asgi import Receive, Scope, Send
from tests.api.test_protocol import GET, echo, served

pytestmark = pytest.mark.enable_socket

UPGRADE = (
    b"GET /s HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def echo_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """Says what it hears over a WebSocket; answers everything else as `echo` does."""
    if scope["type"] == "http":
        await echo(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": f"{scope['path']} {message['text']}"})


def masked(text: bytes) -> bytes:
    """A client's text frame, its mask all zeros."""
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text


async def test_a_websocket_is_handed_over_and_no_deadline_of_ours_strikes_it() -> None:
    async with served(echo_socket, timeout_s=0.2, ws="websockets-sansio") as server, server.client(UPGRADE) as client:
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 Switching Protocols")
        await asyncio.sleep(0.5)
        client.send(masked(b"hello"))
        assert (await client.until(b"/s hello")).count(b"HTTP/1.1") == 1


async def test_a_websockets_head_may_come_in_pieces_and_after_another_request() -> None:
    async with served(echo_socket, ws="websockets-sansio") as server, server.client(GET) as client:
        await client.until(b"/a ")
        for piece in (UPGRADE[:20], UPGRADE[20:70], UPGRADE[70:76], UPGRADE[76:100], UPGRADE[100:]):
            client.send(piece)
            await asyncio.sleep(0.02)
        await client.until(b"101 Switching Protocols")
        client.send(masked(b"hello"))
        await client.until(b"/s hello")


async def refuse_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuses a WebSocket in words."""
    await receive()
    await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
    await send({"type": "websocket.http.response.body", "body": b"who ", "more_body": True})
    await send({"type": "websocket.http.response.body", "body": b"are you?"})


async def test_a_refusal_is_no_fault_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with served(refuse_socket, ws="websockets-sansio") as server, server.client(UPGRADE) as client:
        answer = await client.until(b"who are you?")
    assert answer.startswith(b"HTTP/1.1 401 Unauthorized")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head.replace(b"Host: x", b"Host: x\r\nCookie: " + b"c" * 9000),
        lambda head: head.replace(b"Host: x", b"Host: x" + b"\r\na: b" * 130),
        lambda head: head.replace(b"Host: x", b"Host: x\r\nContent-Length: 5") + b"hello",
        lambda head: head.replace(b"Host: x", b"Host: x\r\nTransfer-Encoding: chunked") + b"0\r\n\r\n",
        lambda head: head.replace(b"/s", b"/\xc3\xa4"),
        lambda head: head.replace(b"Version: 13", b"Version: 12"),
    ],
)
async def test_a_websocket_that_cannot_begin_is_refused_in_words(change: Callable[[bytes], bytes]) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    async with served(echo_socket, ws="websockets-sansio") as server, server.client(change(UPGRADE)) as client:
        assert b" 4" in (await client.until(b"\r\n\r\n"))[:13]
        await asyncio.wait_for(client.closed.wait(), 2)
    assert faults == []


async def test_a_websocket_offered_where_none_can_be_is_answered_as_a_plain_request() -> None:
    put = UPGRADE.replace(b"GET", b"PUT")
    for server_with, head in ((served(echo_socket, ws="websockets-sansio"), put), (served(), UPGRADE)):
        async with server_with as server, server.client(head) as client:
            assert b"200 OK" in await client.until(b"/s ")


async def test_a_websocket_before_the_last_answer_ends_the_connection() -> None:
    closed = asyncio.Event()

    async def silent(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await closed.wait()

    async with served(silent, ws="websockets-sansio") as server, server.client(GET) as client:
        await asyncio.sleep(0.05)
        client.send(UPGRADE)
        await asyncio.wait_for(client.closed.wait(), 2)
        closed.set()
        assert client.got == b""


async def test_an_offer_of_http_2_is_declined_where_websockets_are_taken() -> None:
    head = b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with served(echo_socket, ws="websockets-sansio") as server, server.client(head) as client:
        assert b"200 OK" in await client.until(b"/a ")
