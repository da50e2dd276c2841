"""The client towards engines, against servers that refuse, break off, redirect and set cookies."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.errors import EngineFailed
from infra.types import EngineId, PoolId, RunId
from tests.fakes import make_entry
from workers.live import Engine
from workers.transport import Transport
from workers.wire import Mark

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
        response.let_go()
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
            response.let_go()
    assert len(peers) == 1


PONG = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npong"


@asynccontextmanager
async def scripted(*connections: Sequence[bytes | None]) -> AsyncIterator[tuple[str, list[int]]]:
    """Answers, in their order, to the questions that come over each connection; None closes instead of answering.

    Yields the URL, and of each question the number of the connection it came over.
    """
    asked: list[int] = []
    waiting = list(enumerate(connections))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, answers = waiting.pop(0)
        for answer in answers:
            if not await reader.read(65536):
                break
            asked.append(number)
            if answer is None:
                break
            writer.write(answer)
        else:
            await reader.read()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", asked


async def asked(transport: Transport, url: str) -> bytes:
    response = await transport.post(engine(url), "/x", b"{}")
    try:
        return await response.read()
    finally:
        response.let_go()


async def test_a_question_that_meets_a_closing_connection_is_asked_again(transport: Transport) -> None:
    async with scripted([PONG, None], [PONG, PONG]) as (url, over):
        assert [await asked(transport, url) for _ in range(3)] == [b"pong"] * 3
        assert over == [0, 0, 1, 1]


async def test_a_question_is_asked_again_once_and_over_a_new_connection(transport: Transport) -> None:
    async with scripted([PONG, None], [None]) as (url, over):
        assert await asked(transport, url) == b"pong"
        with pytest.raises(EngineFailed, match="did not answer"):
            await asked(transport, url)
        assert over == [0, 0, 1]


async def test_a_question_that_was_heard_is_not_asked_again(transport: Transport) -> None:
    async with scripted([PONG, b"HTTP/1.1 20"], [PONG]) as (url, over):
        assert await asked(transport, url) == b"pong"
        asking = asyncio.create_task(asked(transport, url))
        await asyncio.sleep(0.05)
        await transport.close()
        with pytest.raises(EngineFailed, match="did not answer"):
            await asking
        assert over == [0, 0]


async def test_an_idle_connection_is_closed_before_its_engine_would_do_it(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.transport.KEEP_ALIVE_S", 0.05)
    async with scripted(*[[PONG, PONG]] * 3) as (url, over):
        assert await asked(transport, url) == b"pong"
        while transport._open:
            await asyncio.sleep(0.01)
        assert not any(transport._idle.values())
        assert await asked(transport, url) == b"pong"
        assert transport._sweeping is not None
        transport._sweeping.cancel()  # nobody sweeps: it is too old all the same
        await asyncio.sleep(0.06)
        assert await asked(transport, url) == b"pong"
        assert over == [0, 1, 2]


async def test_questions_at_once_go_over_connections_of_their_own(transport: Transport) -> None:
    peers: set[object] = set()

    async def look(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        await asyncio.sleep(0.05)
        return web.Response(body=b"pong")

    async with served(look) as url:
        for _ in range(2):
            assert await asyncio.gather(*(asked(transport, url) for _ in range(5))) == [b"pong"] * 5
    assert len(peers) == 5


async def test_what_cannot_be_sent(transport: Transport) -> None:
    split = engine("http://127.0.0.1:1/v1")
    split.headers = {"Authorization": "Bearer a\r\nX: y"}
    with pytest.raises(EngineFailed, match="line's end"):
        await transport.post(split, "/x", b"{}")
    for url in ("http://[::1/v1", "http://127.0.0.1:99999/v1", f"http://{'a' * 70}.invalid/v1", "http:///v1"):
        with pytest.raises(EngineFailed):
            await transport.post(engine(url), "/x", b"{}")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    made = tmp_path / "localhost.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]
    done = subprocess.run([openssl, "req", "-x509", *key, *subject, "-keyout", "-"], capture_output=True, check=True)
    made.write_bytes(done.stdout)
    return made


async def test_a_far_service_is_known_by_its_certificate(
    transport: Transport, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[str] = []

    async def look(request: web.Request) -> web.Response:
        asked_for.append(request.headers["Host"])
        return web.Response(body=b"pong" * 2**20)

    app = web.Application()
    app.router.add_post("/v1/x", look)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(certificate)
    server = TestServer(app, host="127.0.0.1", scheme="https")
    await server.start_server(ssl=theirs)
    async with server:
        host = f"localhost:{server.port}"
        url = f"https://{host}/v1"
        with pytest.raises(EngineFailed, match="certificate verify failed"):
            await asked(transport, url)
        ours = ssl.create_default_context(cafile=str(certificate))
        monkeypatch.setattr("workers.transport._tls", lambda: ours)
        for _ in range(2):
            assert await asked(transport, url) == b"pong" * 2**20
        assert len([each for each in transport._open if each.kept(0.0)]) == 1
        with pytest.raises(EngineFailed, match="did not answer"):
            await asked(transport, f"https://127.0.0.1:{server.port}/v1")  # not the name on its certificate
    assert asked_for == [host] * 2


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
        response.let_go()
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
            response.let_go()
    assert sent == [None, None]


async def test_bytes_come_as_they_were_sent(transport: Transport) -> None:
    async def packed(_request: web.Request) -> web.Response:
        return web.Response(body=b"\x1f\x8b not really", headers={"Content-Encoding": "gzip"})

    async with served(packed) as url:
        response = await transport.post(engine(url), "/x", b"{}")
        assert await response.read() == b"\x1f\x8b not really"
        response.let_go()


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
    assert len(transport._targets) <= 1000


async def test_an_engine_process_is_told_whose_work_it_does_and_a_far_service_is_not(transport: Transport) -> None:
    seen: list[dict[str, str]] = []

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        seen.append({name: value for name, value in request.headers.items() if name.startswith("X-Coderai")})
        return web.Response(body=b"{}")

    mark = Mark(RunId("run"), "part-1", 1, 3)
    wanted = {"X-Coderai-Run": "run", "X-Coderai-Step": "part-1", "X-Coderai-Part": "2/3"}
    async with served(handle) as url:
        asked = engine(url)
        for local in (True, False):
            asked.local = local
            answer = await transport.post(asked, "/a", b"{}", mark)
            assert (answer.status, await answer.read()) == (200, b"{}")
            assert await transport.upload(asked, "/a", [("a", "b")], mark=mark) == (200, b"{}")
        answer = await transport.post(engine(url), "/a", b"{}")
        assert await answer.read() == b"{}"
    assert seen == [wanted, wanted, {}, {}, {}]


async def test_an_answer_to_a_form_comes_as_it_is_made(transport: Transport) -> None:
    seen, left = asyncio.Event(), asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(status=207)
        await response.prepare(request)
        await response.write(b"one")
        await asyncio.wait_for(seen.wait(), 5)
        if request.path == "/v1/broken":
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(b"two")
        try:
            if request.path == "/v1/endless":
                await asyncio.Event().wait()
        finally:
            left.set()
        return response

    async with served(handle) as url:
        for path in ("/whole", "/broken", "/endless"):
            seen.clear()
            left.clear()
            async with transport.form(engine(url), path, [("a", "b")]) as answer:
                assert (answer.status, await answer.piece()) == (207, b"one")
                seen.set()
                if path == "/broken":
                    with pytest.raises(EngineFailed, match="cpu/m broke off its answer"):
                        await answer.piece()
                else:
                    assert await answer.piece() == b"two"
                if path == "/whole":
                    assert await answer.piece() == b""
            if path != "/broken":
                await asyncio.wait_for(left.wait(), 5)  # whoever has had enough ends it
        with pytest.raises(EngineFailed, match="did not answer"):
            async with transport.form(engine("http://127.0.0.1:1/v1"), "/a", []):
                pass


async def test_an_answer_to_a_form_may_be_too_large(transport: Transport) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(65):
            await response.write(bytes(1 << 20))
        return response

    async with served(handle) as url:
        with pytest.raises(EngineFailed, match="more than 64 MiB"):
            await transport.upload(engine(url), "/a", [("a", "b")])
