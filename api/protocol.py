"""uvicorn's HTTP protocol with two additions: an end to requests that never arrive whole, and fewer system calls.

`request_timeout_s` runs from a connection's first moment, and from each request's first byte, until the request is
there. Writes of one turn of the loop leave together: uvicorn writes an answer's head and body apart, and a system call
costs more than all the rest of it.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LATE = (
    b'{"error":{"message":"the request did not arrive in time; send it whole, or raise server.body_timeout_s",'
    b'"type":"invalid_request_error","param":null,"code":"request_timeout"}}'
)
_LATE_ANSWER = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: " + str(len(_LATE)).encode() + b"\r\n\r\n" + _LATE
)


class GatheringTransport:
    """A transport whose writes of one turn of the loop leave as one."""

    __slots__ = ("_loop", "_pending", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Leave with whatever else is written in this turn."""
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append(data)

    def flush(self) -> None:
        """Write now."""
        pending, self._pending = self._pending, []
        if pending:
            self._transport.write(pending[0] if len(pending) == 1 else b"".join(pending))

    def close(self) -> None:
        """Close after what is pending."""
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
        super().connection_made(GatheringTransport(transport, self.loop))  # type: ignore[arg-type]
        self._timer = self.loop.call_later(self.request_timeout_s, self._late)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request: if it is not whole yet, the rest is awaited."""
        super().data_received(data)
        if self._timer is None and (self.cycle is None or self.cycle.more_body):
            self._timer = self.loop.call_later(self.request_timeout_s, self._late)

    def on_message_complete(self) -> None:
        """A request is there."""
        super().on_message_complete()
        self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._arrived()
        super().connection_lost(exc)

    def _arrived(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.cycle is None or not self.cycle.response_started:
            self.transport.write(_LATE_ANSWER)
        self.transport.close()


def patient_protocol(timeout_s: float) -> type[PatientProtocol]:
    """The protocol's class for a server whose clients have that long to send a request."""
    return type("PatientProtocol", (PatientProtocol,), {"request_timeout_s": timeout_s})
