"""uvicorn's HTTP protocol with additions: an end to requests that never arrive whole, word of a client that has left,
answers for clients that end their side first, that speak HTTP/1.0 or offer HTTP/2, and fewer system calls. A connection
that becomes a WebSocket is handed over to uvicorn's protocol for those.

`request_timeout_s` runs from a connection's first moment, and from each request's first byte, until the request is
there. An answer's head leaves with the body's first bytes: uvicorn writes them apart, and a system call costs more than
all the rest of it.
"""

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import MAX_LINE_LENGTH, MAX_NUM_HEADERS

from api.asgi import CLIENT_EXTENSION, Client, Message, Send

HEAD_MOST_BYTES = 64 * 1024
"""A request's line and headers, together."""
PROBES_S = (0.0, 0.1, 1.0)
"""When a client that has ended its side is asked whether it still reads, in seconds from then."""
_PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_OTHER_UPGRADE = re.compile(rb"\r\nupgrade:(?![ \t]*websocket[ \t]*\r\n)[^\r\n]*(?=\r\n)", re.IGNORECASE)
_WITH_BODY = (b"content-length", b"transfer-encoding")
_LONG = b"the request's headers are over the limit of 64 KiB; send less"
_NO_WEBSOCKET = b"a WebSocket begins with a GET without a body and with headers of at most 8 KiB each"
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

    def write_now(self, data: bytes) -> None:
        """Write what is no head of an answer."""
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


def _unchunked(cycle: RequestResponseCycle) -> Send:
    """`cycle.send` for a client of HTTP/1.0, which knows no chunks: the connection's end is the body's."""
    send = cycle.send
    open_ended = False

    async def send_plain(message: Message) -> None:
        nonlocal open_ended
        if message["type"] == "http.response.start":
            open_ended = all(name.lower() != b"content-length" for name, _value in message["headers"])
            cycle.chunked_encoding = False if open_ended else None
        elif open_ended:
            cycle.expected_content_length = len(message.get("body", b""))  # never more nor less than was announced
        await send(message)  # type: ignore[arg-type]  # ours are plain dicts

    return send_plain


class RefusableWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket; that one takes each refusal in words for an application that forgot to answer, and logs it
    as an error: anybody could fill the log."""

    async def send(self, message: Any) -> None:
        """See ASGI."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True


class PatientProtocol(HttpToolsProtocol):
    """One client's connection."""

    request_timeout_s = 30.0
    _timer: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0
    _begins_as_get = False
    _handed_over = False

    def connection_made(self, transport: Any) -> None:
        """A client has come: its first request is awaited."""
        self._client = Client()
        self._client.more_time = self._more_time
        self._client.cut = transport.abort
        super().connection_made(GatheringTransport(transport, self.loop))  # type: ignore[arg-type]
        self._timer = self.loop.call_later(self.request_timeout_s, self._late)

    def on_message_begin(self) -> None:
        """A request begins: who answers it may want to know when its client leaves."""
        super().on_message_begin()
        self.scope["extensions"] = {CLIENT_EXTENSION: self._client}  # type: ignore[dict-item]  # ours is an object
        self._client.aside = bytes
        self._in_head = True

    def on_headers_complete(self) -> None:
        """A request's head is there."""
        super().on_headers_complete()
        self._in_head, self._head_bytes = False, 0
        if self.cycle is not None and self.cycle.scope is self.scope and self.scope["http_version"] == "1.0":
            self.cycle.send = _unchunked(self.cycle)  # type: ignore[method-assign, assignment]

    def data_received(self, data: bytes) -> None:
        """Bytes of a request: if it is not whole yet, the rest is awaited."""
        if not self._in_head:
            self._begins_as_get = data.startswith(b"GET ")
        if b"pgrade:" in data and (self.cycle is None or not self.cycle.more_body):
            websockets = self._begins_as_get and self._should_upgrade_to_ws()
            data = _without_offer(data, _OTHER_UPGRADE if websockets else _UPGRADE)
        super().data_received(data)
        if self._handed_over:
            return
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_MOST_BYTES:
                self._refuse(b"431 Request Header Fields Too Large", _LONG, b"headers_too_large")
        cycle = self.cycle
        if self._timer is None and (cycle is None or cycle.more_body or cycle.response_complete):
            self._timer = self.loop.call_later(self.request_timeout_s, self._late)

    def on_message_complete(self) -> None:
        """A request is there. Reading goes on, even where much of it is still to be taken: nobody would hear otherwise
        that the client leaves."""
        super().on_message_complete()
        self._arrived()
        if not self.pipeline:
            self.flow.resume_reading()

    def handle_websocket_upgrade(self) -> None:
        """A WebSocket begins: from here on the connection is another protocol's.

        That one knows no answer to a request which it cannot read, and would end in the loop's own error handler.
        """
        self._arrived()
        self._handed_over = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # a client that does not wait for its answer
        elif not _readable(self.url, self.headers):
            self._refuse(b"400 Bad Request", _NO_WEBSOCKET, b"invalid_http")
        else:
            self.ws_protocol_class = RefusableWebSocket
            super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Bytes that are no HTTP request are answered in the one shape, too."""
        self._refuse(b"400 Bad Request", msg.encode(), b"invalid_http")

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's closes always
        """The client will send no more. If all of its request is there it gets its answer.

        One that has left altogether looks the same until something is written to it: HTTP/1.1 has words without a
        meaning for that, and a stream of events has; what meets them on the other side, if nobody does, is the
        connection's end.
        """
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete:
            return False
        cycle.keep_alive = False
        if cycle.scope["http_version"] == "1.1" and not self.pipeline:
            for delay_s in PROBES_S:
                self.loop.call_later(delay_s, self._probe, cycle)
        return True

    def _probe(self, cycle: RequestResponseCycle) -> None:
        if cycle.disconnected or cycle.response_complete or self.transport.is_closing():
            return
        if not cycle.response_started:
            self.transport.write_now(_PROBE)  # type: ignore[attr-defined]  # ours, see connection_made
        elif not self.flow.write_paused and (aside := self._client.aside()):
            self.transport.write(b"%x\r\n%b\r\n" % (len(aside), aside))

    def _refuse(self, status: bytes, message: bytes, code: bytes) -> None:
        self._arrived()
        self.transport.write(_error_answer(status, message, code))
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

    def _more_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self.loop.call_later(self.request_timeout_s, self._late)

    def _late(self) -> None:
        self._timer = None
        cycle = self.cycle
        between = cycle is not None and cycle.response_complete and not cycle.more_body
        if cycle is None or between or not cycle.response_started:
            self.transport.write(_error_answer(b"408 Request Timeout", _LATE, b"request_timeout"))
        self.transport.close()


def _without_offer(data: bytes, offer: re.Pattern[bytes]) -> bytes:
    """A request without its offer to speak another protocol (Java's client offers HTTP/2, each time): the parser would
    take the offer for accepted, and the body for that protocol's."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return offer.sub(b"", head + end[:2]) + end[2:] + rest


def _readable(url: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the WebSocket protocol's own parser can read a request's head."""
    longest = max(
        len(url) + len(b"GET  HTTP/1.1\r\n"), *(len(name) + len(value) + len(b": \r\n") for name, value in headers)
    )
    plain = all(name not in _WITH_BODY for name, _value in headers)
    return plain and url.isascii() and longest <= MAX_LINE_LENGTH and len(headers) <= MAX_NUM_HEADERS


def patient_protocol(timeout_s: float) -> type[PatientProtocol]:
    """The protocol's class for a server whose clients have that long to send a request."""
    return type("PatientProtocol", (PatientProtocol,), {"request_timeout_s": timeout_s})
