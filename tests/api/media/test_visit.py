"""Files of one request: there while it lasts, whichever way they came, and gone where it became no run."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.asgi import CLIENT_EXTENSION, Client, Exchange, Message
from api.media.visit import MediaVisit
from api.openai.resources import RESOURCES
from infra.errors import InvalidRequest
from infra.types import Json
from tests.api.conftest import Front, StartFront

pytestmark = pytest.mark.enable_socket
Taking = Callable[["Visit"], Awaitable[None]]


class Visit(MediaVisit):
    """Takes what a test says, notes which files there were then, and is refused for want of a model."""

    def __init__(self, front: Front, taking: Taking) -> None:
        super().__init__(front.services, RESOURCES["embeddings"])
        self.front = front
        self.taking = taking
        self.held: list[Path] = []

    async def _take(self, exchange: Exchange) -> dict[str, Json]:
        await self.taking(self)
        self.held = files(self.front)
        return {"model": "nobody"}


def files(front: Front) -> list[Path]:
    folders = ("passing", "payloads", "jobs")
    found = [path for folder in folders for path in front.settings.at(folder).rglob("*") if path.is_file()]
    return [path.relative_to(front.settings.home) for path in found]


async def called(front: Front, taking: Taking, **headers: str) -> tuple[Visit, int, Any]:
    """The visit, its status and its answer."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    visit = Visit(front, taking)
    lines = [(name.lower().encode(), value.encode()) for name, value in (front.headers() | headers).items()]
    scope = {"path": "/v1/x", "headers": lines, "extensions": {CLIENT_EXTENSION: Client()}}
    await visit(scope, receive, send)
    return visit, sent[0]["status"], orjson.loads(sent[1]["body"])


async def put_two(visit: Visit) -> None:
    assert await visit.put(b"one") == await visit.put(b"one")
    await visit.put(b"two")


@pytest.mark.parametrize(("lane", "folder"), [("interactive", "payloads"), ("job", "jobs")])
async def test_files_in_memory(start_front: StartFront, lane: str, folder: str) -> None:
    front = await start_front()
    visit, status, body = await called(front, put_two, **{"X-Coderai-Lane": lane})
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert {path.parts[0] for path in visit.held} == {folder}
    assert len(visit.held) == 2
    assert files(front) == []


async def test_a_file_in_pieces(start_front: StartFront) -> None:
    async def take(visit: Visit) -> None:
        async with visit.incoming(10, 0) as incoming:
            incoming.write(b"one")
            incoming.write(b"two")
            assert (await visit.keep(incoming)).startswith("sha256:")
        async with visit.incoming(10, 0) as incoming:
            incoming.write(b"is not kept")

    front = await start_front()
    visit, status, body = await called(front, take)
    assert (status, body["error"]["code"]) == (413, "file_too_large")
    assert files(front) == visit.held == []


async def test_what_is_wrong_after_a_file_was_kept(start_front: StartFront) -> None:
    async def take(visit: Visit) -> None:
        await visit.put(b"one")
        assert len(files(visit.front)) == 1
        raise InvalidRequest("the second file is wrong", param="file")

    front = await start_front()
    _visit, status, body = await called(front, take)
    assert (status, body["error"]["param"], files(front)) == (400, "file", [])


async def test_a_lane_that_is_none(start_front: StartFront) -> None:
    front = await start_front()
    visit, status, body = await called(front, put_two, **{"X-Coderai-Lane": "fast"})
    assert (status, body["error"]["param"], visit.held) == (400, "X-Coderai-Lane", [])
