"""A transcript over HTTP while it is heard: by one engine, whole when it ends, free when its client leaves."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import BodyPartReader, web

from tests.api.conftest import Front, StartFront
from tests.sounds import wav
from workers.engine.hearing import delta_event, done_event

pytestmark = pytest.mark.enable_socket
ROW = {"name": "ears", "path": "/weights/ears", "format": "whisper", "capabilities": ["stt"], "weights_bytes": 1000}
CARDS = {"engine_specs": [{"name": name, "backend": "cpu", "memory_mib": 4096} for name in ("cpu-a", "cpu-b")]}
SOUND = wav(12.0)
PATH = "/v1/audio/transcriptions"


class Ears:
    """An engine that streams two sentences, the second once it may `go_on`; or breaks off where it stands."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.breaks_at: int | None = None
        self.asked: list[tuple[str, str | None]] = []
        front.children.answer = self

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        form: dict[str, str] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            form[str(part.name)] = "" if part.filename else await part.text()
        self.asked.append((request.path, form.get("stream")))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        for number, event in enumerate((delta_event("One."), delta_event(" Two."), done_event("One. Two.", {}))):
            if number == self.breaks_at:
                assert request.transport is not None
                request.transport.abort()
                break
            if not response.prepared:
                await response.prepare(request)
            await response.write(event)
            await self.go_on.wait()
        return response


@pytest.fixture
async def ears(start_front: StartFront) -> Ears:
    """On two cards, for a model of which every recording is worth a split."""
    return Ears(await start_front([ROW | {"distribute": {"min_items": 2, "chunk_seconds": 5}}], cards=CARDS))


def asked(front: Front, headers: dict[str, str] | None = None, **fields: str) -> Any:
    form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
    for name, value in ({"model": "ears", "stream": "true"} | fields).items():
        form.add_field(name, value)
    form.add_field("file", SOUND, filename="speech.wav")
    return front.session.post(front.url + PATH, data=form, headers=front.headers() | (headers or {}))


def events_in(stream: str) -> list[dict[str, Any]]:
    return [json.loads(event.removeprefix("data: ")) for event in stream.split("\n\n") if event]


async def idle(front: Front) -> None:
    async with asyncio.timeout(1):
        while any(engine.in_flight for engine in front.services.fleet.engines()):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("form", ["json", "text"])
async def test_it_comes_as_it_is_heard_and_from_one_engine(ears: Ears, form: str) -> None:
    ears.go_on.clear()
    async with asked(ears.front, response_format=form) as answer:
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert answer.headers["x-coderai-engine"] in ("cpu-a/ears", "cpu-b/ears")
        assert await answer.content.readuntil(b"\n\n") == delta_event("One.")
        ears.go_on.set()
        rest = events_in(await answer.text())
    assert [event["type"] for event in rest] == ["transcript.text.delta", "transcript.text.done"]
    assert rest[-1]["text"] == "One. Two."
    assert ears.asked == [(PATH, "true")]
    await idle(ears.front)


async def test_a_client_that_leaves_frees_the_engine(ears: Ears) -> None:
    ears.go_on.clear()
    async with asked(ears.front) as answer:
        await answer.content.readuntil(b"\n\n")
        answer.close()
    await idle(ears.front)
    ears.go_on.set()


async def test_an_engine_that_breaks_off_in_the_middle_ends_it_in_an_error(ears: Ears) -> None:
    ears.breaks_at = 1
    async with asked(ears.front) as answer:
        events = events_in(await answer.text())
    assert events[0] == {"type": "transcript.text.delta", "delta": "One."}
    assert (events[1]["error"]["code"], events[1]["error"]["type"]) == ("engine_failed", "server_error")
    assert len(ears.asked) == 1


async def test_before_the_first_word_it_is_tried_elsewhere(ears: Ears) -> None:
    ears.breaks_at = 0
    async with asked(ears.front) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (502, "engine_failed")
    assert len(ears.asked) == 2


@pytest.mark.parametrize(
    ("fields", "headers", "param"),
    [
        ({"response_format": "vtt"}, {}, "response_format"),
        ({}, {"X-Coderai-Lane": "job"}, "stream"),
    ],
)
async def test_what_is_not_streamed(ears: Ears, fields: dict[str, str], headers: dict[str, str], param: str) -> None:
    async with asked(ears.front, headers, **fields) as answer:
        assert (answer.status, (await answer.json())["error"]["param"]) == (400, param)
    assert not ears.asked


async def test_its_plan_is_one_step(ears: Ears) -> None:
    request = {"model": "ears", "file": {"seconds": 600}}
    tasks: list[list[str]] = []
    for fields in ({"stream": True}, {}):
        status, body = await ears.front.post("/v1/plan", {"endpoint": "transcription", "request": request | fields})
        assert status == 200, body
        tasks.append([step["task"] for step in body["plan"]["steps"]])
    assert tasks[0] == ["stream_transcript"]
    assert "transcribe_part" in tasks[1]
