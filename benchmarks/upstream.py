"""An engine that does no work: fixed answers in OpenAI's shape, for as little CPU as Python allows.

`python -m benchmarks.upstream PORT [INTERVAL_MS]` serves `/v1/chat/completions` (plain, or 50 chunks of SSE that start
`INTERVAL_MS` apart), `/v1/models` and `/health` on loopback. A raw asyncio protocol, because whatever the upstream
burns is missing from the machine that the proxies are measured on.
"""

import argparse
import asyncio
import functools
from typing import cast

import httptools
import orjson
import uvloop

CHUNKS = 50
MODEL = "bench"
_CREATED = 1_700_000_000
_USAGE = {"prompt_tokens": 12, "completion_tokens": CHUNKS, "total_tokens": 12 + CHUNKS}
_HEADERS = b"HTTP/1.1 %s\r\nServer: upstream\r\nContent-Type: %s\r\n"


def _json_response(body: object, status: bytes = b"200 OK") -> bytes:
    payload = orjson.dumps(body)
    head = _HEADERS % (status, b"application/json")
    return head + b"Content-Length: %d\r\n\r\n" % len(payload) + payload


def _http_chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return b"data: " + orjson.dumps(_chunk_object([choice], None)) + b"\n\n"


def _chunk_object(choices: list[dict[str, object]], usage: dict[str, int] | None) -> dict[str, object]:
    common = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": _CREATED, "model": MODEL}
    return {**common, "choices": choices, "usage": usage}


def plain_answer() -> bytes:
    """The whole HTTP response of a chat that is not streamed."""
    message = {"role": "assistant", "content": "word " * CHUNKS, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    common = {"id": "chatcmpl-bench", "object": "chat.completion", "created": _CREATED, "model": MODEL}
    return _json_response({**common, "choices": [choice], "usage": _USAGE})


def stream_writes(include_usage: bool) -> list[bytes]:
    """What is written to the socket for a streamed chat: the header, then one entry a chunk.

    The usage and `[DONE]` travel with the last chunk, as they do from an engine that has just sampled its last token.
    """
    events = [_event({"role": "assistant", "content": "word "})]
    events += [_event({"content": "word "}) for _ in range(CHUNKS - 2)]
    last = _event({"content": "word"}, "stop")
    if include_usage:
        last += b"data: " + orjson.dumps(_chunk_object([], _USAGE)) + b"\n\n"
    last += b"data: [DONE]\n\n"
    head = _HEADERS % (b"200 OK", b"text/event-stream") + b"Transfer-Encoding: chunked\r\n\r\n"
    return [head, *map(_http_chunk, events), _http_chunk(last) + b"0\r\n\r\n"]


_PLAIN = plain_answer()
_STREAM = stream_writes(include_usage=False)
_STREAM_WITH_USAGE = stream_writes(include_usage=True)
_MODELS = _json_response(
    {"object": "list", "data": [{"id": MODEL, "object": "model", "created": _CREATED, "owned_by": "bench"}]}
)
_HEALTH = _json_response({"status": "ok"})
_NOT_FOUND = _json_response(
    {"error": {"message": "no such route", "type": "invalid_request_error", "param": None, "code": "not_found"}},
    b"404 Not Found",
)
_FIXED = {b"/v1/models": _MODELS, b"/health": _HEALTH, b"/v1/health": _HEALTH}


class Upstream(asyncio.Protocol):
    """One connection; requests on it are answered one after the other."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; it is a socket's."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class, with the same methods

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop a stream that nobody reads."""
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = self._body = b""

    def on_url(self, url: bytes) -> None:
        """The request's path."""
        self._url += url

    def on_body(self, body: bytes) -> None:
        """A part of the request's body."""
        self._body += body

    def on_message_complete(self) -> None:
        """The request is whole: answer it."""
        if self._url != b"/v1/chat/completions":
            self._transport.write(_FIXED.get(self._url, _NOT_FOUND))
            return
        request = orjson.loads(self._body)
        if not request.get("stream"):
            self._transport.write(_PLAIN)
            return
        usage = (request.get("stream_options") or {}).get("include_usage")
        writes = _STREAM_WITH_USAGE if usage else _STREAM
        self._transport.write(writes[0] + writes[1])
        self._next(writes, 2, self._loop.time())

    def _next(self, writes: list[bytes], index: int, last: float) -> None:
        if index < len(writes):
            due = last + self._interval_s
            self._timer = self._loop.call_at(due, functools.partial(self._write, writes, index, due))

    def _write(self, writes: list[bytes], index: int, due: float) -> None:
        self._transport.write(writes[index])
        self._next(writes, index + 1, due)


async def _serve(port: int, interval_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Upstream(interval_s), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("port", type=int)
    arguments.add_argument("interval_ms", type=float, nargs="?", default=10.0)
    given = arguments.parse_args()
    uvloop.run(_serve(given.port, given.interval_ms / 1000))
