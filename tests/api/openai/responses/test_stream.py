"""An error in the midst of a response's stream."""

import json
from typing import Any

import pytest

from api.asgi import CLIENT_EXTENSION, Client, Exchange, Message
from api.openai.responses.stream import ResponseStream
from infra.errors import CoderAIError, EngineFailed, RateLimited, UpstreamRefused
from tasks.responses.answer import begun
from tasks.responses.events import Events


class Wire:
    """A client's connection: keeps what was sent."""

    def __init__(self) -> None:
        self.sent = b""

    async def send(self, message: Message) -> None:
        self.sent += message.get("body", b"")

    async def receive(self) -> Message:
        raise AssertionError("nothing is read")

    def stream(self) -> ResponseStream:
        scope = {"path": "/v1/responses", "headers": [], "extensions": {CLIENT_EXTENSION: Client()}}
        return ResponseStream(Exchange(scope, self.receive, self.send), list)

    def events(self) -> list[Any]:
        return [json.loads(event.partition(b"data: ")[2]) for event in self.sent.split(b"\n\n")[:-1]]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineFailed("it broke"), "server_error"),
        (UpstreamRefused("too long", status=400), "invalid_prompt"),
        (RateLimited("slower"), "rate_limit_exceeded"),
    ],
)
async def test_it_ends_with_the_failed_response(error: CoderAIError, code: str) -> None:
    wire = Wire()
    stream = wire.stream()
    events = Events(begun({"model": "m"}))
    await stream.write(events.begin() + events.chunk({"choices": [{"index": 0, "delta": {"content": "a"}}]}))
    assert not stream.finished
    await stream.tell(error)
    last = wire.events()[-1]
    assert (last["type"], last["sequence_number"]) == ("response.failed", len(wire.events()) - 1)
    assert (last["response"]["status"], last["response"]["error"]) == (
        "failed",
        {"code": code, "message": error.message},
    )
    assert stream.finished  # a client may leave now


async def test_what_is_not_ours_is_told_to_nobody() -> None:
    wire = Wire()
    stream = wire.stream()
    await stream.write(Events(begun({})).begin())
    await stream.tell(ValueError("a secret"))
    assert b"secret" not in wire.sent
