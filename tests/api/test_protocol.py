"""The HTTP protocol on real sockets: gathered writes, requests that never arrive, keep-alive, pipelining, old HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from api.asgi import EventStream, Exchange, Receive, Scope, Send
from api.protocol import GatheringTransport, patient_protocol

pytestmark = pytest.mark.enable_socket

App = Callable[[Scope, Receive, Send], Awaitable[None]]
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path and the body."""
    exchange = Exchange(scope, receive, send)
    body = await exchange.body(2**20)
    await exchange.answer(200, exchange.path.encode() + b" " + body)


@asynccontextmanager
async def served(
    app: App = echo, timeout_s: float = 5.0, keep_alive_s: int = 5, ws: Any = "none"
) -> AsyncIterator["Address"]:
    config = uvicorn.Config(
        app,
        loop="none",
        http=patient_protocol(timeout_s),
        ws=ws,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=keep_alive_s,
    )
    config.load()
    state = ServerState()
    protocol: Callable[..., asyncio.Protocol] = config.http_protocol_class
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0)
    async with server:
        yield Address(server.sockets[0].getsockname()[1])
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        await asyncio.sleep(0)


@dataclass
class Client(asyncio.Protocol):
    """A connection that keeps what came, one item a call of the transport."""

    pieces: list[bytes] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    transport: asyncio.Transport | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self._news.set()

    @property
    def got(self) -> bytes:
        return b"".join(self.pieces)

    def send(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    async def until(self, end: bytes, count: int = 1) -> bytes:
        async with asyncio.timeout(5):
            while self.got.count(end) < count:
                assert not self.closed.is_set(), self.got
                self._news.clear()
                await self._news.wait()
        return self.got


@dataclass
class Address:
    """Where the server is."""

    port: int

    @asynccontextmanager
    async def client(self, first: bytes = b"") -> AsyncIterator[Client]:
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(Client, "127.0.0.1", self.port)
        if first:
            client.send(first)
        yield client
        transport.abort()


class Recorder(asyncio.Transport):
    """A transport that keeps its writes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("1.2.3.4", 5)})
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True


async def test_a_head_leaves_with_the_body_s_first_bytes() -> None:
    below = Recorder()
    transport = GatheringTransport(below, asyncio.get_running_loop())
    transport.write(b"HTTP/1.1 200 OK\r\n\r\n")
    assert below.writes == []
    transport.write(b"first")
    transport.write(b"second")
    await asyncio.sleep(0)
    assert below.writes == [b"HTTP/1.1 200 OK\r\n\r\nfirst", b"second"]
    assert transport.get_extra_info("peername") == ("1.2.3.4", 5)


async def test_a_head_whose_body_is_late_does_not_wait_for_it() -> None:
    below = Recorder()
    transport = GatheringTransport(below, asyncio.get_running_loop())
    transport.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await asyncio.sleep(0)
    assert below.writes == [b"HTTP/1.1 200 OK\r\n\r\n"]
    transport.write(b"late")
    assert below.writes[1:] == [b"late"]


async def test_heads_that_follow_each_other_keep_their_order() -> None:
    below = Recorder()
    transport = GatheringTransport(below, asyncio.get_running_loop())
    for data in (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1. is a body, too"):
        transport.write(data)
    await asyncio.sleep(0)
    assert b"".join(below.writes) == b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nHTTP/1. is a body, too"


async def test_closing_sends_what_is_pending_first() -> None:
    below = Recorder()
    transport = GatheringTransport(below, asyncio.get_running_loop())
    transport.write(b"HTTP/1.1 204 last words")
    transport.close()
    assert (below.writes, below.is_closed) == ([b"HTTP/1.1 204 last words"], True)
    await asyncio.sleep(0)
    assert len(below.writes) == 1


async def test_an_answer_s_head_and_body_arrive_together() -> None:
    async with served() as server, server.client(GET) as client:
        await client.until(b"/a ")
        (whole,) = client.pieces
        assert whole.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_connection_serves_request_after_request() -> None:
    async with served() as server, server.client() as client:
        for number in range(3):
            client.send(GET.replace(b"/a", b"/%d" % number))
            await client.until(b"\r\n\r\n/%d " % number)
        assert client.got.count(b"HTTP/1.1 200 OK") == 3
        assert not client.closed.is_set()


async def test_pipelined_requests_are_answered_in_order() -> None:
    async def later_is_quicker(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.03 / int(scope["path"][1:]))
        await echo(scope, receive, send)

    requests = b"".join(b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok" % n for n in (1, 2, 3))
    async with served(later_is_quicker) as server, server.client(requests) as client:
        got = await client.until(b" ok", 3)
    assert [got.index(b"/%d ok" % number) for number in (1, 2, 3)] == sorted(
        got.index(b"/%d ok" % number) for number in (1, 2, 3)
    )


@pytest.mark.parametrize(
    "request_", [b"GET /a HTTP/1.0\r\n\r\n", b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"]
)
async def test_http_1_0_and_close_get_the_whole_answer_and_a_close(request_: bytes) -> None:
    async with served() as server, server.client(request_) as client:
        async with asyncio.timeout(5):
            await client.closed.wait()
        assert client.got.endswith(b"\r\n\r\n/a ")
        assert b"connection: close" in client.got.lower()


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    async with served() as server, server.client(head) as client:
        await client.until(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.send(b"hello")
        assert (await client.until(b"hello")).count(b"HTTP/1.1 200 OK") == 1


async def test_a_client_that_asks_first_may_be_refused_at_once() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await Exchange(scope, receive, send).answer(401, b"no")

    head = b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    async with served(refuse, timeout_s=0.1) as server, server.client(head) as client:
        assert b"100 Continue" not in await client.until(b"\r\n\r\nno")
        async with asyncio.timeout(5):
            await client.closed.wait()  # its body never comes
        assert client.got.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"\r\n",
        b"GET /a HT",
        b"GET /a HTTP/1.1\r\nHost: x\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf",
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
@pytest.mark.parametrize("before", [b"", GET])
async def test_a_request_that_does_not_arrive_is_ended(before: bytes, half: bytes) -> None:
    """Also the second one of a connection, whatever was answered before."""
    async with served(timeout_s=0.15, keep_alive_s=1) as server, server.client(before) as client:
        if before:
            await client.until(b"\r\n\r\n/a ")
        client.send(half)
        async with asyncio.timeout(2):
            await client.closed.wait()
        late = client.got.partition(b"/a ")[2] if before else client.got
        if half or not before:
            assert late.startswith(b"HTTP/1.1 408 ")
            assert late.endswith(b'"code":"request_timeout"}}')
        else:
            assert late == b""  # between requests there is nothing to complain about


async def test_a_drip_of_bytes_does_not_extend_the_time() -> None:
    async with served(timeout_s=0.2) as server, server.client(GET) as client:
        await client.until(b"/a ")
        async with asyncio.timeout(2):
            while not client.closed.is_set():
                client.send(b"X")
                await asyncio.sleep(0.02)
    assert b"408" in client.got or b"400" in client.got


async def test_work_that_takes_longer_than_a_request_may_is_not_cut() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        await exchange.body(100)
        await asyncio.sleep(0.3)
        await exchange.answer(200, b"done")

    async with served(slow, timeout_s=0.1) as server, server.client(GET) as client:
        assert (await client.until(b"done")).startswith(b"HTTP/1.1 200")
        assert not client.closed.is_set()


async def test_what_is_no_http_is_refused() -> None:
    async with served() as server, server.client(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") as client:
        async with asyncio.timeout(5):
            await client.closed.wait()
        assert client.got.startswith(b"HTTP/1.1 400 ")
        assert b'"code":"invalid_http"' in client.got


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with two events."""
    exchange = Exchange(scope, receive, send)
    await exchange.body(2**20)
    events = EventStream(exchange, list)
    await events.write(b"data: 1\n\n")
    await asyncio.sleep(0.05)
    await events.write(b"data: 2\n\n")
    await events.end()


async def test_a_stream_to_http_1_0_has_no_chunks_and_ends_with_the_connection() -> None:
    async with served(stream) as server, server.client(b"POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx") as client:
        await asyncio.wait_for(client.closed.wait(), 5)
        head, _, body = client.got.partition(b"\r\n\r\n")
        assert body == b"data: 1\n\ndata: 2\n\n"
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("app", [echo, stream])
async def test_who_ends_its_side_after_the_request_gets_the_answer(app: App, version: bytes) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.2)
        await app(scope, receive, send)

    request = b"POST /a HTTP/%b\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi" % version
    async with served(slow) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request)
        writer.write_eof()
        got = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await writer.wait_closed()
    assert got.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"").startswith(b"HTTP/1.1 200 OK\r\n")
    assert (b"/a hi" if app is echo else b"data: 2") in got


async def test_who_ends_its_side_after_two_requests_gets_both_answers() -> None:
    async with served() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(GET + GET.replace(b"/a", b"/b"))
        writer.write_eof()
        got = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await writer.wait_closed()
    assert got.count(b"200 OK") == 2
    assert got.endswith(b"/b ")


@pytest.mark.parametrize("body_bytes", [0, 100_000])
async def test_who_leaves_altogether_is_noticed_though_it_looks_the_same_at_first(body_bytes: int) -> None:
    left = asyncio.Event()

    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        exchange.client.left = left.set
        await exchange.body(2**20)
        await asyncio.wait_for(left.wait(), 5)

    async with served(hang) as server:
        _reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % body_bytes)
        await asyncio.sleep(0.05)
        writer.write(bytes(body_bytes))
        await asyncio.sleep(0.05)
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(left.wait(), 1)


@pytest.mark.parametrize("request_", [b"", GET[:-2], b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_who_ends_its_side_in_the_middle_is_gone(request_: bytes) -> None:
    async with served() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request_)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 2) == b""
        writer.close()
        await writer.wait_closed()


async def test_headers_have_a_limit() -> None:
    async with served() as server, server.client(b"GET / HTTP/1.1\r\nHost: x\r\n") as client:
        for _ in range(100):
            client.send(b"X-Long: " + b"x" * 8000 + b"\r\n")
            await asyncio.sleep(0)
            if client.closed.is_set():
                break
        await asyncio.wait_for(client.closed.wait(), 2)
        assert not client.got or client.got.startswith(b"HTTP/1.1 431 ")  # a reset may overtake the answer
    async with served() as server, server.client(GET[:-2] + b"X-Long: " + b"x" * 30_000 + b"\r\n\r\n") as client:
        assert (await client.until(b"/a ")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("apart", [False, True])
async def test_an_offer_of_http_2_is_declined_by_answering(apart: bool) -> None:
    head = (
        b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 5\r\n"
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nUpgrade: h2c\r\n\r\n"
    )
    async with served() as server, server.client(head if apart else head + b"hello") as client:
        if apart:
            await asyncio.sleep(0.05)
            client.send(b"hello")
        assert (await client.until(b"/a hello")).startswith(b"HTTP/1.1 200 OK")
        client.send(GET)
        await client.until(b"200 OK", 2)
