"""One HTTP exchange on plain ASGI: reading a body within limits, answering, streaming, noticing a client that left.

The hot routes stand on this instead of a framework's request objects, which cost more than all of our own work.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from api.errors import Headers, error_body, error_headers
from infra.clock import monotonic
from infra.error_object import status_of
from infra.errors import InvalidRequest, PayloadTooLarge
from infra.types import Json

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_JSON: Headers = [(b"content-type", b"application/json")]
CLIENT_EXTENSION = "coderai.client"
"""Where the server's protocol puts its `Client` into the scope."""


class ClientGone(Exception):
    """The client closed its connection before it had sent its request."""


class Exchange:
    """One request and its answer."""

    __slots__ = ("answered", "client", "headers", "path", "receive", "scope", "send", "status")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.path: str = scope["path"]
        self.headers = headers_by_name(scope["headers"])
        self.client: Client = scope["extensions"][CLIENT_EXTENSION]
        self.answered = False
        self.status = 0

    def header(self, name: bytes) -> str | None:
        """A header by its lower-case name."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def body(self, max_bytes: int) -> bytes:
        """The whole body. The server closes a connection whose body does not arrive in time (`api/protocol.py`).

        Raises:
            PayloadTooLarge: it is, or claims to be, over the limit; the rest is not read.
            ClientGone: the client left.
        """
        claimed = self.header(b"content-length")
        if claimed is not None and claimed.isdecimal() and int(claimed) > max_bytes:
            raise _too_large(max_bytes)
        message = await self._message()
        body = _within(message.get("body", b""), max_bytes)
        if not message.get("more_body", False):
            return body
        parts = [body]
        size_bytes = len(body)
        while message.get("more_body", False):
            message = await self._message()
            part = message.get("body", b"")
            size_bytes += len(part)
            if size_bytes > max_bytes:
                raise _too_large(max_bytes)
            parts.append(part)
        return b"".join(parts)

    async def answer(self, status: int, body: bytes, headers: Headers = _JSON) -> None:
        """Send a whole answer."""
        self.answered, self.status = True, status
        await self.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, (b"content-length", str(len(body)).encode())],
            }
        )
        await self.send({"type": "http.response.body", "body": body})

    async def fail(self, error: BaseException, headers: Headers) -> None:
        """Answer with an error, in OpenAI's shape."""
        await self.answer(status_of(error), error_body(error), error_headers(error) + headers)

    async def _message(self) -> Message:
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message


_DONE = (b"data: [DONE]\n\n", b"data: [DONE]\r\n\r\n")
_DONE_BYTES = len(_DONE[1])


class EventStream:
    """The client's end of a server-sent event stream; the answer's head leaves with the first bytes."""

    __slots__ = ("_concluded", "_end", "_exchange", "_extra", "first_write_s", "started")

    def __init__(self, exchange: Exchange, extra: Callable[[], Headers]) -> None:
        self._exchange = exchange
        self._extra = extra
        self._end = b""
        self._concluded = False
        self.started = False
        self.first_write_s: float | None = None

    @property
    def finished(self) -> bool:
        """Whether the stream's last event was passed on."""
        return self._concluded or self._end.endswith(_DONE)

    @property
    def head(self) -> Headers:
        """The headers that say what comes."""
        return [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]

    async def write(self, data: bytes) -> None:
        """Pass bytes on; waits while the client's connection is full."""
        if not self.started:
            self.started = True
            self._exchange.client.aside = self.aside
            self.first_write_s = monotonic()
            self._exchange.answered, self._exchange.status = True, 200
            headers = self.head + self._extra()
            await self._exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
        self._end = data if len(data) >= _DONE_BYTES else (self._end + data)[-_DONE_BYTES:]
        await self._exchange.send({"type": "http.response.body", "body": data, "more_body": True})

    async def conclude(self, data: bytes) -> None:
        """Pass on what the stream ends with: a client may leave from now on."""
        self._concluded = True
        await self.write(data)

    async def tell(self, error: Exception) -> None:
        """Say in the midst of the stream what ends it."""
        await self.write(b"\n\ndata: " + error_body(error) + b"\n\n")  # it may have broken off within an event

    def aside(self) -> bytes:
        """What can be said now without a meaning: a comment between two events."""
        return b":\n\n" if self._end.endswith(b"\n\n") else b""

    async def end(self) -> None:
        """Close the stream."""
        await self._exchange.send({"type": "http.response.body", "body": b""})


class Client:
    """One connection's client, as the server's protocol tells of it: whoever answers it can be cancelled."""

    __slots__ = ("aside", "cut", "gone", "left", "more_time")

    def __init__(self) -> None:
        self.gone = False
        self.aside: Callable[[], bytes] = bytes
        """What can be written to it in the midst of its answer without a meaning, if anything."""
        self.cut: Callable[[], None] = _nothing
        """Closes the connection in the midst of an answer."""
        self.more_time: Callable[[], None] = _nothing
        """Begins the time anew that the client has for sending the rest of its request."""
        self.left: Callable[[], None] | None = None
        """Called when the client leaves in the middle of a request."""

    def leave(self) -> None:
        """The connection is lost."""
        self.gone = True
        if self.left is not None:
            self.left()


def _nothing() -> None:
    """A connection that does not look at the time."""


class ClientWatch:
    """Cancels the task that answers when its client has left before the end of `stream`, or of a whole answer."""

    __slots__ = ("_client", "_stream", "_task", "gone")

    def __init__(self, client: Client, stream: EventStream | None = None) -> None:
        self._client = client
        self._stream = stream
        self._task: asyncio.Task[Any] | None = None
        self.gone = False

    def __enter__(self) -> "ClientWatch":
        self._task = asyncio.current_task()
        self._client.left = self._left
        if self._client.gone:
            self._left()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._client.left = None

    def _left(self) -> None:
        if self._task is not None and not (self._stream is not None and self._stream.finished):
            self.gone = True
            self._task.cancel()


def headers_by_name(headers: Headers) -> dict[bytes, bytes]:
    """Headers by their lower-case names; of one that comes more than once the last, of several `authorization` none.

    A proxy before us may have looked at another one of them than we would: such a request has no key.
    """
    named = dict(headers)
    if len(named) < len(headers) and sum(name == b"authorization" for name, _ in headers) > 1:
        del named[b"authorization"]
    return named


def parse_object(body: bytes) -> dict[str, Json]:
    """A body as a JSON object.

    Raises:
        InvalidRequest: it is not JSON, or not an object.
    """
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the request's body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(parsed, dict):
        raise InvalidRequest("the request's body must be a JSON object")
    return parsed


def _within(body: bytes, max_bytes: int) -> bytes:
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    return body


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the request's body is over the limit of {max_bytes // 2**20} MiB; send less, or raise server.max_body_mb"
    )
