"""Streams of images over HTTP: OpenAI's events as they come, and how one ends that cannot go on."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.api.conftest import Front, StartFront
from tests.api.media.test_images import EDIT, IMAGE, MAKE, MASK, PAINTER, Painter, started
from tests.far_service import KEY, PICTURE, FarService
from workers.engine.drawing import Drawing

pytestmark = pytest.mark.enable_socket
ASKED: dict[str, Any] = {"model": "painter", "prompt": "a fox", "seed": 7, "stream": True}


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream; those of images have names."""
    events: list[dict[str, Any]] = []
    for block in filter(str.strip, text.split("\n\n")):
        name, _, data = block.rpartition("data: ")
        event = orjson.loads(data)
        assert name.strip() in ("", f"event: {event.get('type')}")
        events.append(event)
    return events


async def streamed(front: Front, path: str = MAKE, **more: Any) -> list[dict[str, Any]]:
    async with front.session.post(front.url + path, json=ASKED | more, headers=front.headers()) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        assert "X-Coderai-Run" in answer.headers
        return events_of(await answer.text())


async def test_looks_and_images_in_their_order_from_one_engine(start_front: StartFront) -> None:
    painter = Painter()
    front = await started(start_front, painter)
    events = await streamed(front, n=2, partial_images=2, quality="high")
    kinds = ["partial_image", "partial_image", "completed"] * 2
    assert [event["type"] for event in events] == [f"image_generation.{kind}" for kind in kinds]
    assert [event.get("partial_image_index") for event in events] == [0, 1, None] * 2
    assert [base64.b64decode(event["b64_json"]) for event in events] == [MASK, MASK, IMAGE] * 2
    assert {(event["size"], event["quality"], event["background"]) for event in events} == {("64x64", "high", "auto")}
    assert [(drawing.seed, drawing.previews) for drawing in painter.drawings] == [(7, 2), (8, 2)]


async def test_an_edit_as_a_form(start_front: StartFront) -> None:
    painter = Painter()
    front = await started(start_front, painter)
    form = aiohttp.FormData({"prompt": "a fox", "stream": "true", "partial_images": "1"}, default_to_multipart=True)
    form.add_field("image", IMAGE, filename="a.png")
    async with front.session.post(front.url + EDIT, data=form, headers=front.headers()) as answer:
        events = events_of(await answer.text())
    assert [event["type"] for event in events] == ["image_edit.partial_image", "image_edit.completed"]
    assert painter.files == [{"image": IMAGE}]


async def test_an_engine_that_breaks_off(start_front: StartFront) -> None:
    painter = Painter()
    painter.breaks_off = True
    front = await started(start_front, painter)
    *looks, error = await streamed(front, partial_images=1)
    assert [event["type"] for event in looks] == ["image_generation.partial_image"]
    assert (error["error"]["code"], error["error"]["type"]) == ("engine_failed", "server_error")
    assert len(painter.drawings) == 1  # what the client has seen cannot be drawn anew


async def test_what_is_wrong_before_the_first_event_has_its_status(start_front: StartFront) -> None:
    front = await started(start_front)

    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no", "param": "size", "code": "wrong"}}, status=400)

    front.children.answer = refuse
    for looks in (0, 1):
        status, answer = await front.post(MAKE, ASKED | {"partial_images": looks})
        assert (status, answer["error"]["param"]) == (400, "size")


async def test_a_client_that_leaves_frees_the_engine(start_front: StartFront) -> None:
    left = asyncio.Event()

    class Slow(Painter):
        async def shown(self, request: web.Request, drawing: Drawing) -> web.StreamResponse:
            response = await super().shown(request, drawing)
            while request.transport is not None and not request.transport.is_closing():
                await asyncio.sleep(0.01)
            left.set()
            return response

    painter = Slow()
    front = await started(start_front, painter)
    async with front.session.post(front.url + MAKE, json=ASKED | {"partial_images": 1}, headers=front.headers()) as (
        answer
    ):
        assert (await answer.content.readuntil(b"\n")).startswith(b"event: image_generation.partial_image")
        answer.close()
    await asyncio.wait_for(left.wait(), 5)
    front.children.answer = Painter().answer
    assert len(await streamed(front, partial_images=1)) == 2


async def test_a_job_has_no_stream(start_front: StartFront) -> None:
    front = await started(start_front)
    status, answer = await front.post(MAKE, ASKED, **{"X-Coderai-Lane": "job"})
    assert (status, answer["error"]["param"]) == (400, "stream")
    assert "a job's answer is fetched when it is whole" in answer["error"]["message"]


@pytest.fixture
async def far(start_front: StartFront) -> AsyncIterator[tuple[Front, FarService]]:
    service = FarService()
    row = {"name": "painter", "served_model": "dall-e-3", "api_key": KEY, "capabilities": ["images"]}
    async with TestServer(service.app(), host="127.0.0.1") as server:
        yield (
            await start_front([PAINTER | {"name": "other"}, row | {"service_url": str(server.make_url("/"))}]),
            service,
        )


async def test_a_far_service_s_images_are_events_too(far: tuple[Front, FarService]) -> None:
    front, service = far
    events = await streamed(front, seed=None, n=2, partial_images=3)
    assert [event["type"] for event in events] == ["image_generation.completed"] * 2
    assert [base64.b64decode(event["b64_json"]) for event in events] == [PICTURE] * 2
    assert not any({"stream", "partial_images"} & asked.keys() for asked in service.asked)
