"""One HTTP/1.1 connection to an engine: a request's bytes out, the answer's bytes in as they come.

A client library's features (cookies, redirects, decoding, tracing) cost more than all the rest of a request. What comes
back is parsed strictly, by llhttp, and half an answer is never taken for a whole one.
"""

import asyncio
import math
import re
import socket
from typing import Any, Final, cast

import httptools

HEAD_MOST_BYTES = 64 * 1024
"""An answer's status and headers, together."""
HELD_MOST_BYTES = 256 * 1024
"""Of a body that comes faster than it is taken: at more the engine has to wait."""
READ_MOST_BYTES = 512 << 20
"""Of a body that is read whole: vectors of thousands of texts are a tenth of it."""
KEEP_ALIVE: Final = {
    "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE": 60,
    "TCP_KEEPINTVL": 15,
    "TCP_KEEPCNT": 4,
}
"""After how many seconds of silence the far end is asked whether it is there, every how many, and how many times."""
_FRAMED = re.compile(rb"\n(?:content-length|transfer-encoding):", re.IGNORECASE)


def engine_socket(address: tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, Any]) -> socket.socket:
    """A socket for a connection to an address of `getaddrinfo`, which breaks when the machine there is gone: one that
    was switched off says nothing, and an answer may take as long as it needs.

    Raises:
        OSError: there is none to be had.
    """
    family, kind, protocol, _name, _at = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEP_ALIVE.items():
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError:
        made.close()
        raise
    return made


class BrokenOff(Exception):
    """The connection is lost, or what came over it is no answer."""


class Connection(asyncio.Protocol):
    """A connection, and the answer to what was asked on it last: `status`, then `read`, or `piece` until it is empty.

    Whoever has called `ask` calls `let_go` once, whatever came of it, and has no business with the connection then.
    """

    __slots__ = (
        "_broken",
        "_complete",
        "_framed",
        "_head",
        "_held_bytes",
        "_idle_since_s",
        "_loop",
        "_parser",
        "_paused",
        "_pieces",
        "_pool",
        "_reusable",
        "_transport",
        "_unbounded",
        "_waiter",
        "status",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: "list[Connection]") -> None:
        self._loop = loop
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._broken = ""
        self._paused = self._unbounded = False
        self._framed = self._complete = True
        self._head = b""
        self._idle_since_s = math.inf
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._reusable = False
        self.status = 0

    @property
    def silent(self) -> bool:
        """Whether nothing at all has come since the last question."""
        return not self._head

    def kept(self, since_s: float) -> bool:
        """Whether it is open still; one that has had nothing to do since before that time is closed here."""
        if self._idle_since_s < since_s:
            self.close()
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes) -> None:
        """Send a whole request; on return the answer's `status` is there.

        Raises:
            BrokenOff: there will be no answer. The connection is closed then, as it is on a cancellation.
        """
        self.status = 0
        self._head = b""
        self._idle_since_s = math.inf
        self._complete = self._reusable = self._unbounded = False
        self._framed = True
        transport = self._transport
        try:
            if transport is None or transport.is_closing():
                raise BrokenOff("the connection was closed")  # noqa: TRY301
            transport.write(request)
            while not self.status:
                await self._news()
        except BaseException:
            self.close()
            raise

    async def read(self) -> bytes:
        """The whole body, or what is left of it.

        Raises:
            BrokenOff: it does not come to its end, or not within `READ_MOST_BYTES`.
        """
        self._unbounded = True
        self._resume()
        while not self._complete:
            await self._news()
        return self._taken()

    async def piece(self) -> bytes:
        """What has come of the body; nothing only at its end.

        Raises:
            BrokenOff: it does not come to its end.
        """
        while not self._pieces and not self._complete:
            await self._news()
        self._resume()
        return self._taken()

    def let_go(self) -> None:
        """Keep the connection for the next question if the answer was taken whole, else close it: the engine stops."""
        transport = self._transport
        whole = self._complete and not self._pieces
        if whole and self._reusable and transport is not None and not transport.get_write_buffer_size():
            self._idle_since_s = self._loop.time()
            self._pool.append(self)
        else:
            self.close()

    def close(self) -> None:
        """Close at once; what is not whole yet will never be."""
        self._reusable = False
        self._broken = self._broken or "the connection was closed"
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class, with the same methods

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: which is the end of an answer without a length, and breaks off any other."""
        self._reusable = False
        if self.status and not self._framed and not self._broken and exc is None:
            self._complete = True
        self._break(str(exc or "the connection was closed"))

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer; while none is due they make the connection useless."""
        if self._complete:
            self.close()
            return
        if not self.status:
            self._head += data
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"not HTTP/1.1: {error}")
            self.close()
            return
        if self.status:
            if self._complete or not self._unbounded:
                self._wake()
        elif len(self._head) > HEAD_MOST_BYTES:
            self._break("the answer's headers are over 64 KiB")
            self.close()

    def on_message_begin(self) -> None:
        """An answer begins: one that nobody has asked for is not to be taken for the next one's."""
        if self._complete:
            self._reusable = False

    def on_headers_complete(self) -> None:
        """A head is there; one of an interim answer (1xx) is passed over."""
        status = self._parser.get_status_code()
        if status >= 200 and not self._complete:
            self.status = status
            self._reusable = self._parser.should_keep_alive()
            self._framed = self._reusable or _FRAMED.search(self._head) is not None

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._complete:
            return
        self._pieces.append(body)
        self._held_bytes += len(body)
        if self._held_bytes > READ_MOST_BYTES:
            self._break(f"the answer is over {READ_MOST_BYTES >> 20} MiB")
            self.close()
        elif self._held_bytes > HELD_MOST_BYTES and not self._unbounded and not self._paused:
            assert self._transport is not None
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """An answer is whole."""
        if self.status:
            self._complete = True

    def _news(self) -> asyncio.Future[None]:
        """To be awaited until something has come."""
        if self._broken:
            raise BrokenOff(self._broken)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _taken(self) -> bytes:
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._held_bytes = 0
        return body

    def _resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _break(self, why: str) -> None:
        self._broken = self._broken or why
        self._wake()
