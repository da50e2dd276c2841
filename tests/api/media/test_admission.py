"""Who is let in, and what is answered whatever goes wrong."""

from typing import Any

import orjson
import pytest

from api.asgi import CLIENT_EXTENSION, Client, ClientGone, Exchange, Message
from api.media.admission import Take, answering
from infra.errors import InvalidRequest
from infra.tokens import Key
from infra.types import Frozen
from tests.api.conftest import Front, StartFront

pytestmark = pytest.mark.enable_socket


class Made(Frozen):
    """An answer."""

    key: str
    note: str | None = None


async def taken(_exchange: Exchange, key: Key) -> Made:
    return Made(key=key.name)


async def called(front: Front, take: Take, scope: str | None = "user") -> list[tuple[int, Any]]:
    """Status and body of what is sent; nothing, where that is nothing."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    headers = front.headers(scope) if scope else {}
    lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    connection = {"path": "/v1/x", "headers": lines, "extensions": {CLIENT_EXTENSION: Client()}}
    await answering(front.services, take)(connection, receive, send)
    return [(start["status"], orjson.loads(body["body"])) for start, body in zip(sent[::2], sent[1::2], strict=True)]


async def test_a_caller_is_known_and_answered(start_front: StartFront) -> None:
    front = await start_front()
    assert await called(front, taken) == [(200, {"key": "user"})]
    ((status, body),) = await called(front, taken, None)
    assert (status, body["error"]["code"]) == (401, "missing_api_key")


async def test_what_goes_wrong_is_answered_and_the_key_s_place_is_free_again(
    start_front: StartFront, caplog: pytest.LogCaptureFixture
) -> None:
    front = await start_front(auth={"requests_in_flight": 1})

    async def wrong(_exchange: Exchange, _key: Key) -> Made:
        ((status, _body),) = await called(front, taken)
        assert status == 429, "one at once"
        raise InvalidRequest("no", param="x")

    async def broken(_exchange: Exchange, _key: Key) -> Made:
        raise ZeroDivisionError

    async def gone(_exchange: Exchange, _key: Key) -> Made:
        raise ClientGone

    ((status, body),) = await called(front, wrong)
    assert (status, body["error"]["param"]) == (400, "x")
    ((status, body),) = await called(front, broken)
    assert (status, body["error"]["code"]) == (500, "internal_error")
    assert "ZeroDivisionError" in caplog.text
    assert await called(front, gone) == []
    assert await called(front, taken) == [(200, {"key": "user"})]
