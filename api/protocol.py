"""uvicorn's HTTP protocol with three additions: an end to requests that never arrive whole, word of a client that has
left, and fewer system calls.

`request_timeout_s` runs from a connection's first moment, and from each request's first byte, until the request is
there. An answer's head leaves with the body's first bytes: uvicorn writes them apart, and a system call costs more than
all the rest of it.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.asgi import CLIENT_EXTENSION, Client

_LATE = b"the request did not arrive in time; send it whole, or raise server.body_timeout_s"


def _error_answer(status: bytes, message: bytes, code: bytes) -> bytes:
    """A whole answer, for connections that no request stands behind; `message` needs no escapes."""
    body = b'{"error":{"message":"%b","type":"invalid_request_error","param":null,"code":"%b"}}' % (message, code)
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


_HEAD = b"HTTP/1."


class GatheringTransport:
    """A transport that keeps an answer's head back until the body's first bytes, for one turn of the loop at most."""

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Write, or keep back if it is a head."""
        if self._head is not None:
            data, self._head = self._head + data, None
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Write a head whose body does not come at once."""
        if self._head is not None:
            data, self._head = self._head, None
            self._transport.write(data)

    def close(self) -> None:
        """Close after what is kept back."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class PatientProtocol(HttpToolsProtocol):
    """One client's connection."""

    request_timeout_s = 30.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client has come: its first request is awaited."""
        self._client = Client()
        super().connection_made(GatheringTransport(transport, self.loop))  # type: ignore[arg-type]
        self._timer = self.loop.call_later(self.request_timeout_s, self._late)

    def on_message_begin(self) -> None:
        """A request begins: who answers it may want to know when its client leaves."""
        super().on_message_begin()
        self.scope["extensions"] = {CLIENT_EXTENSION: self._client}  # type: ignore[dict-item]  # ours is an object

    def data_received(self, data: bytes) -> None:
        """Bytes of a request: if it is not whole yet, the rest is awaited."""
        super().data_received(data)
        cycle = self.cycle
        if self._timer is None and (cycle is None or cycle.more_body or cycle.response_complete):
            self._timer = self.loop.call_later(self.request_timeout_s, self._late)

    def on_message_complete(self) -> None:
        """A request is there."""
        super().on_message_complete()
        self._arrived()

    def send_400_response(self, msg: str) -> None:
        """Bytes that are no HTTP request are answered in the one shape, too."""
        self._arrived()
        self.transport.write(_error_answer(b"400 Bad Request", msg.encode(), b"invalid_http"))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._arrived()
        super().connection_lost(exc)
        self._client.leave()

    def _arrived(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        cycle = self.cycle
        between = cycle is not None and cycle.response_complete and not cycle.more_body
        if cycle is None or between or not cycle.response_started:
            self.transport.write(_error_answer(b"408 Request Timeout", _LATE, b"request_timeout"))
        self.transport.close()


def patient_protocol(timeout_s: float) -> type[PatientProtocol]:
    """The protocol's class for a server whose clients have that long to send a request."""
    return type("PatientProtocol", (PatientProtocol,), {"request_timeout_s": timeout_s})
