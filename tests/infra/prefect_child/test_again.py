"""Tests of asking again: what Prefect refused for a lock is answered, and nothing else is asked twice."""

from collections.abc import MutableMapping
from typing import Any

import pytest

from infra.prefect_child.again import MOST_BYTES, RECORD_PATH, AskAgain, Message, Receive, Send


class Locked:
    """An app that answers 503 so many times, then 201; like Prefect's it raises once it has answered 503."""

    def __init__(self, times: int, *, raises: bool = True) -> None:
        self.times = times
        self.raises = raises
        self.bodies: list[bytes] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        self.bodies.append(body)
        locked = len(self.bodies) <= self.times
        await send({"type": "http.response.start", "status": 503 if locked else 201, "headers": []})
        await send({"type": "http.response.body", "body": b"locked" if locked else b"made"})
        if locked and self.raises:
            raise RuntimeError("database is locked")


async def ask(app: Locked, parts: list[bytes], method: str = "POST", path: str = "/flows/api/x") -> list[Message]:
    sent: list[Message] = []
    waiting = [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts]

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await AskAgain(app, pauses_s=(0.0, 0.0))({"type": "http", "method": method, "path": path}, receive, send)
    return sent


@pytest.mark.parametrize("times", [0, 1, 2])
async def test_a_lock_that_goes_away_is_never_seen(times: int) -> None:
    app = Locked(times)
    sent = await ask(app, [b"a", b"b"])
    assert [message.get("status") for message in sent] == [201, None]
    assert app.bodies == [b"ab"] * (times + 1)


async def test_a_lock_that_stays_is_told() -> None:
    app = Locked(9, raises=False)
    sent = await ask(app, [b"a"])
    assert sent[0]["status"] == 503
    assert len(app.bodies) == 3


async def test_another_failure_is_passed_on() -> None:
    class Broken(Locked):
        async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            self.bodies.append(b"")
            raise RuntimeError("a bug")

    app = Broken(0)
    with pytest.raises(RuntimeError, match="a bug"):
        await ask(app, [b"a"])
    assert len(app.bodies) == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "/flows/api/ready", b""), ("POST", RECORD_PATH, b"{}"), ("POST", "/x", b"x" * (MOST_BYTES + 1))],
)
async def test_what_is_asked_once_only(method: str, path: str, body: bytes) -> None:
    app = Locked(1, raises=False)
    sent = await ask(app, [body, b""], method, path)
    assert sent[0]["status"] == 503
    assert len(app.bodies) == 1
