"""The client towards engines, against servers that refuse, break off, redirect and set cookies."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.errors import EngineFailed
from infra.types import EngineId, PoolId
from tests.fakes import make_entry
from workers.live import Engine
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    made = Transport()
    yield made
    await made.close()


def engine(base_url: str) -> Engine:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer engine-key"}
    return Engine(EngineId("cpu/m"), make_entry(), PoolId("cpu"), True, 1, base_url, headers)


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app, host="127.0.0.1") as server:
        yield str(server.make_url("/v1"))


@asynccontextmanager
async def raw(answer: bytes) -> AsyncIterator[str]:
    """A server that sends `answer` to whatever comes and closes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def test_what_is_sent_is_what_was_given_and_little_else(transport: Transport) -> None:
    seen: list[tuple[str, bytes, dict[str, str]]] = []

    async def look(request: web.Request) -> web.Response:
        seen.append((request.path_qs, await request.read(), dict(request.headers)))
        return web.Response(body=b"pong")

    async with served(look) as url:
        response = await transport.post(engine(url), "/chat/completions", b'{"a": 1}')
        assert (response.status, await response.read()) == (200, b"pong")
    ((path, body, headers),) = seen
    assert (path, body) == ("/v1/chat/completions", b'{"a": 1}')
    assert headers.pop("Host").startswith("127.0.0.1")
    assert headers == {
        "Content-Type": "application/json",
        "Authorization": "Bearer engine-key",
        "Content-Length": "8",
    }


async def test_one_connection_serves_many_requests(transport: Transport) -> None:
    peers: set[object] = set()

    async def look(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response()

    async with served(look) as url:
        for _ in range(3):
            response = await transport.post(engine(url), "/x", b"{}")
            await response.read()
    assert len(peers) == 1


async def test_an_engine_that_is_not_there(transport: Transport, unused_tcp_port: int) -> None:
    with pytest.raises(EngineFailed, match=r"^cpu/m did not answer: .+"):
        await transport.post(engine(f"http://127.0.0.1:{unused_tcp_port}/v1"), "/x", b"{}")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 2"])
async def test_an_engine_that_breaks_off_or_speaks_no_http(transport: Transport, answer: bytes) -> None:
    async with raw(answer) as url:
        with pytest.raises(EngineFailed, match="did not answer"):
            await transport.post(engine(url), "/x", b"{}")


async def test_no_redirect_is_followed(transport: Transport) -> None:
    asked: list[str] = []

    async def redirect(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with served(redirect) as url:
        response = await transport.post(engine(url), "/x", b"{}")
        assert response.status == 307
        response.close()
        assert await transport.alive(f"{url}/models", {}, 1) == 307
    assert asked == ["/v1/x", "/v1/models"]


async def test_no_cookie_is_kept(transport: Transport) -> None:
    sent: list[str | None] = []

    async def bake(request: web.Request) -> web.Response:
        sent.append(request.headers.get("Cookie"))
        response = web.Response()
        response.set_cookie("who", "me")
        return response

    async with served(bake) as url:
        for _ in range(2):
            response = await transport.post(engine(url), "/x", b"{}")
            await response.read()
    assert sent == [None, None]


async def test_bytes_come_as_they_were_sent(transport: Transport) -> None:
    async def packed(_request: web.Request) -> web.Response:
        return web.Response(body=b"\x1f\x8b not really", headers={"Content-Encoding": "gzip"})

    async with served(packed) as url:
        response = await transport.post(engine(url), "/x", b"{}")
        assert await response.read() == b"\x1f\x8b not really"


async def test_health_is_a_status_or_nothing(transport: Transport, unused_tcp_port: int) -> None:
    async def slow(request: web.Request) -> web.Response:
        if request.path == "/v1/slow":
            await asyncio.sleep(1)
        return web.Response(status=503)

    async with served(slow) as url:
        assert await transport.alive(f"{url}/models", {}, 1) == 503
        assert await transport.alive(f"{url}/slow", {}, 0.05) == 0
    assert await transport.alive(f"http://127.0.0.1:{unused_tcp_port}", {}, 1) == 0
    assert await transport.alive("http://[::1/models", {}, 1) == 0
    async with raw(b"nonsense\r\n\r\n") as url:
        assert await transport.alive(url, {}, 1) == 0


async def test_the_addresses_of_engines_of_long_ago_are_not_kept(transport: Transport) -> None:
    for number in range(1100):
        with pytest.raises(EngineFailed):
            await transport.post(engine(f"http://127.0.0.1:1/{number}/v1"), "/x", b"{}")
    assert len(transport._urls) <= 1000
