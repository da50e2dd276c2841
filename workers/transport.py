"""The one HTTP client towards engines: pooled connections, no cookies, no redirects, bytes as they come.

Questions go over connections of our own (`workers/connection.py`): they are on every request's path. The looks that
are taken now and then, at health and properties, go through aiohttp.
"""

import asyncio
import functools
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import aiohappyeyeballs
import aiohttp
import orjson
from yarl import URL

from infra.errors import EngineFailed
from infra.types import Json
from workers.connection import BrokenOff, Connection, engine_socket
from workers.live import Engine
from workers.wire import PART_HEADER, RUN_HEADER, STEP_HEADER, Mark

KEEP_ALIVE_S = 4.0
"""Shorter than the five seconds after which llama.cpp's server, and uvicorn, close an idle connection."""
ANSWER_MOST_BYTES = 64 << 20
"""Of an answer to a form, which is read whole."""
CONNECT_S = 5.0
"""Seconds a connection may take; an answer may take as long as it needs."""
_SECOND_ADDRESS_S = 0.25
"""After which a host's next address is tried beside the first (RFC 8305)."""
_TARGETS_KEPT = 1000
_FORBIDDEN = re.compile(r"[\r\n\0]")


@dataclass(frozen=True, slots=True)
class Target:
    """One path at one engine: how a request to it begins, and its connections that have nothing to do."""

    host: str
    port: int
    secure: bool
    head: bytes
    headers: dict[str, str]
    idle: list[Connection]


class FilePart(NamedTuple):
    """A file of a form; `content` is read as it is sent, and closed then."""

    field: str
    name: str
    media_type: str
    content: BinaryIO


class FormAnswer:
    """An engine's answer to a form: its `status`, then `piece` until that is empty."""

    def __init__(self, engine: Engine, answer: aiohttp.ClientResponse) -> None:
        self.status = answer.status
        self._engine = engine
        self._answer = answer

    async def piece(self) -> bytes:
        """What has come of the body; nothing only at its end.

        Raises:
            EngineFailed: it broke off.
        """
        try:
            return await self._answer.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise EngineFailed(f"{self._engine.id} broke off its answer: {error or type(error).__name__}") from error


async def whole_body(engine: Engine, piece: Callable[[], Awaitable[bytes]]) -> bytes:
    """The body of an engine's answer; `piece` returns nothing only at its end.

    Raises:
        EngineFailed: it is larger than any that is expected; and whatever `piece` raises.
    """
    body = bytearray()
    while more := await piece():
        body += more
        if len(body) > ANSWER_MOST_BYTES:
            raise EngineFailed(f"{engine.id} answered with more than {ANSWER_MOST_BYTES >> 20} MiB")
    return bytes(body)


class Transport:
    """Requests to engines. Made on a running loop, closed with `close`."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, socket_factory=engine_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
            trust_env=False,
        )
        self._loop = asyncio.get_running_loop()
        self._targets: dict[str, Target] = {}
        self._idle: dict[tuple[str, int, bool], list[Connection]] = {}
        self._open: list[Connection] = []
        self._sweeping: asyncio.TimerHandle | None = None

    async def post(self, engine: Engine, path: str, body: bytes, mark: Mark | None = None) -> Connection:
        """Send JSON to `path` below the engine's `/v1`; the answer's head is there on return, its body is not read.

        Whoever gets the answer lets it go. An engine process of ours is told the `mark`.

        Raises:
            EngineFailed: no connection, or it broke before the answer's head.
        """
        address = engine.base_url + path
        target = self._targets.get(address)
        if target is None or target.headers is not engine.headers:
            target = self._target(address, engine)
        marked = "".join(f"{name}: {value}\r\n" for name, value in _marks(engine, mark)).encode() if mark else b""
        request = b"%b%d\r\n%b\r\n%b" % (target.head, len(body), marked, body)
        connection = self._kept(target)
        try:
            if connection is not None:
                try:
                    await connection.ask(request)
                except BrokenOff:
                    # A kept-alive connection may be closed by the far end in the moment in which it is used again.
                    if not connection.silent:
                        raise
                else:
                    return connection
            connection = await self._connected(target)
            await connection.ask(request)
        except (BrokenOff, TimeoutError, OSError, UnicodeError) as error:
            raise EngineFailed(f"{engine.id} did not answer: {error or type(error).__name__}") from error
        return connection

    async def upload(
        self,
        engine: Engine,
        path: str,
        fields: Sequence[tuple[str, str]],
        *files: FilePart,
        mark: Mark | None = None,
    ) -> tuple[int, bytes]:
        """Send a form with files to `path` below the engine's `/v1`; the answer's status and whole body.

        Raises:
            EngineFailed: no connection, it broke, or the answer is larger than any that is expected.
        """
        async with self.form(engine, path, fields, *files, mark=mark) as answer:
            return answer.status, await whole_body(engine, answer.piece)

    @asynccontextmanager
    async def form(
        self,
        engine: Engine,
        path: str,
        fields: Sequence[tuple[str, str]],
        *files: FilePart,
        mark: Mark | None = None,
    ) -> AsyncIterator[FormAnswer]:
        """Send such a form; within the block its answer comes as it is made, and after it the engine stops.

        Raises:
            EngineFailed: no connection, or it broke before the answer's head.
        """
        form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
        for name, value in fields:
            form.add_field(name, value)
        for file in files:
            form.add_field(file.field, file.content, filename=file.name, content_type=file.media_type)
        headers = {name: value for name, value in engine.headers.items() if name.lower() != "content-type"}
        headers |= dict(_marks(engine, mark))
        try:
            answer = await self._session.post(engine.base_url + path, data=form, headers=headers, allow_redirects=False)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise EngineFailed(f"{engine.id} did not answer: {error or type(error).__name__}") from error
        async with answer:
            yield FormAnswer(engine, answer)

    async def alive(self, url: str, headers: dict[str, str], timeout_s: float) -> int:
        """Status of a GET, 0 when nothing answers in time."""
        limit = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.get(url, headers=headers, timeout=limit, allow_redirects=False) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0

    async def get_object(self, url: str, headers: dict[str, str], timeout_s: float = 5.0) -> dict[str, Json]:
        """The JSON object that a GET answers; empty when there is none to be had."""
        limit = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.get(url, headers=headers, timeout=limit, allow_redirects=False) as answer:
                found = orjson.loads(await answer.read()) if answer.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    async def close(self) -> None:
        """Close every connection."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in self._open:
            connection.close()
        await self._session.close()
        await asyncio.sleep(0)

    def _target(self, address: str, engine: Engine) -> Target:
        """What an address and an engine's headers come to, kept for the next time.

        Raises:
            EngineFailed: nothing can be sent there.
        """
        if len(self._targets) >= _TARGETS_KEPT:  # each start of an engine has a port of its own
            self._targets.clear()
            self._idle.clear()  # the connections in there are swept up
        try:
            url = URL(address)
        except ValueError as error:
            raise EngineFailed(f"{engine.id} has an address that is none: {error}") from error
        head = f"POST {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
        for name, value in engine.headers.items():
            if _FORBIDDEN.search(name + value):
                raise EngineFailed(f"{engine.id} has a key that cannot be sent: there is a line's end in it")
            head += f"{name}: {value}\r\n"
        origin = (url.raw_host or "", url.port or 0, url.scheme == "https")
        idle = self._idle.setdefault(origin, [])
        target = Target(*origin, (head + "Content-Length: ").encode(), engine.headers, idle)
        self._targets[address] = target
        return target

    def _kept(self, target: Target) -> Connection | None:
        """An open connection that has nothing to do, the latest used one."""
        idle, oldest_s = target.idle, self._loop.time() - KEEP_ALIVE_S
        while idle:
            connection = idle.pop()
            if connection.kept(oldest_s):
                return connection
        return None

    async def _connected(self, target: Target) -> Connection:
        """A new connection.

        Raises:
            OSError, TimeoutError, UnicodeError: there is none to be had.
        """
        loop = self._loop
        async with asyncio.timeout(CONNECT_S):
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            connected = await aiohappyeyeballs.start_connection(
                found, happy_eyeballs_delay=_SECOND_ADDRESS_S, socket_factory=engine_socket
            )
            try:
                _transport, connection = await loop.create_connection(
                    lambda: Connection(loop, target.idle),
                    sock=connected,
                    ssl=_tls() if target.secure else None,
                    server_hostname=target.host if target.secure else None,
                )
            except BaseException:
                connected.close()
                raise
        self._open.append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(KEEP_ALIVE_S, self._sweep)
        return connection

    def _sweep(self) -> None:
        """Close what has had nothing to do for long, and forget what is closed."""
        oldest_s = self._loop.time() - KEEP_ALIVE_S
        self._open = [each for each in self._open if each.kept(oldest_s)]
        for idle in self._idle.values():
            idle[:] = [each for each in idle if each.kept(oldest_s)]
        self._sweeping = self._loop.call_later(KEEP_ALIVE_S, self._sweep) if self._open else None


def _marks(engine: Engine, mark: Mark | None) -> tuple[tuple[str, str], ...]:
    """The headers that tell an engine process whose work it does: runs are no business of far services."""
    if mark is None or not engine.local:
        return ()
    part = f"{mark.before + 1}/{mark.requests}"
    return (RUN_HEADER, mark.run), (STEP_HEADER, mark.step), (PART_HEADER, part)


@functools.cache
def _tls() -> ssl.SSLContext:
    """How far services are known: by the certificates that this machine trusts."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
