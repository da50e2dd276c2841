"""A long recording over two engines: a whole front, two cards by hand, engines that hear what a sound's length says."""

import asyncio
import io
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import BodyPartReader, web

from infra.ffmpeg import RATE_HZ, SAMPLE_BYTES, decode
from infra.types import EngineId, ModelName
from tests.api.conftest import Front, StartFront
from tests.sounds import encoded

pytestmark = pytest.mark.enable_socket
CARDS = {"engine_specs": [{"name": name, "backend": "cpu", "memory_mib": 4096} for name in ("cpu-a", "cpu-b")]}
SOUND = encoded("-f", "mp3", seconds=40.0)
ROW = {"path": "/weights/ears", "format": "whisper", "capabilities": ["stt"], "weights_bytes": 1000}


class Ears:
    """Engines that hear one word a second, each called by the second of the piece in which it begins."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.asked: list[tuple[str, str]] = []
        self.dies: set[str] = set()
        front.children.answer = self

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        port = request.transport.get_extra_info("sockname")[1]
        name = next(state.name for state in self.front.children.states().values() if state.port == port)
        form: dict[str, Any] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            form[str(part.name)] = bytes(await part.read()) if part.filename else await part.text()
        self.asked.append((name, request.path))
        if name in self.dies:
            request.transport.abort()
        seconds = len(await asyncio.to_thread(decode, form["file"])) / SAMPLE_BYTES / RATE_HZ
        if request.path == "/v1/audio/windows":
            return web.json_response({"duration": seconds, "language": "en", "windows": [[0, 9], [11, 19], [21, 37]]})
        starts = range(round(seconds))
        segments = [{"id": each, "start": each, "end": each + 0.5, "text": f" {each}"} for each in starts]
        heard = {"language": form.get("language", "en"), "duration": seconds, "segments": segments}
        return web.json_response({**heard, "text": " ".join(map(str, starts))})


@pytest.fixture
async def ears(start_front: StartFront) -> Ears:
    """The model `ears` on two cards, and `alone`, which is never split."""
    models = [
        {"name": "ears", **ROW, "distribute": {"min_items": 2, "chunk_seconds": 16}},
        {"name": "alone", **ROW, "distribute": {"enabled": False}},
    ]
    made = Ears(await start_front(models, cards=CARDS))
    assert (await post(made.front, "ears", "text"))[0] == 200
    pools = {engine.pool for engine in made.front.services.fleet.residents.of(ModelName("ears"))}
    assert pools == {"cpu-a", "cpu-b"}
    level(made)
    return made


def level(ears: Ears) -> None:
    """Both cards equally fast, for all that the front has seen."""
    ears.asked.clear()
    for pool in ("cpu-a", "cpu-b"):
        for _ in range(40):
            ears.front.services.sites.speeds.note(EngineId(f"{pool}/ears"), ModelName("ears"), 10, 1.0)


async def post(front: Front, model: str, response_format: str, **headers: str) -> tuple[int, str]:
    form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
    form.add_field("model", model)
    form.add_field("response_format", response_format)
    form.add_field("file", io.BytesIO(SOUND), filename="talk.mp3")
    url, sent = f"{front.url}/v1/audio/transcriptions", front.headers() | headers
    async with front.session.post(url, data=form, headers=sent) as answer:
        return answer.status, await answer.text()


def paths(ears: Ears) -> list[str]:
    return [path.removeprefix("/v1/audio/") for _name, path in ears.asked]


async def test_two_engines_hear_it_and_the_times_are_those_of_the_whole(ears: Ears) -> None:
    status, text = await post(ears.front, "ears", "verbose_json")
    assert (status, sorted(paths(ears))) == (200, ["transcriptions", "transcriptions", "windows"])
    assert {name for name, path in ears.asked if path.endswith("transcriptions")} == {"cpu-a/ears", "cpu-b/ears"}
    answer = json.loads(text)
    assert answer["duration"] == pytest.approx(40.0, abs=0.1)
    starts = [segment["start"] for segment in answer["segments"]]
    # The second part begins in the silence before its first window.
    assert starts == [*range(20), *(20.5 + second for second in range(17))]
    assert [segment["id"] for segment in answer["segments"]] == list(range(len(starts)))


async def test_cues_are_numbered_throughout(ears: Ears) -> None:
    _status, srt = await post(ears.front, "ears", "srt")
    numbers = [int(line) for line in srt.splitlines() if line.isdecimal()]
    cues = [line for line in srt.splitlines() if "-->" in line]
    assert cues == sorted(cues)
    assert set(range(1, len(cues) + 1)) <= set(numbers)
    level(ears)
    _status, vtt = await post(ears.front, "ears", "vtt")
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 -->")
    assert [line for line in vtt.splitlines() if "-->" in line] == [line.replace(",", ".") for line in cues]


async def test_an_engine_that_dies_is_replaced(ears: Ears) -> None:
    undisturbed = await post(ears.front, "ears", "verbose_json")
    level(ears)
    ears.dies = {"cpu-b/ears"}
    assert await post(ears.front, "ears", "verbose_json") == undisturbed


async def test_one_engine_gets_the_whole(ears: Ears) -> None:
    assert (await post(ears.front, "alone", "json"))[0] == 200
    assert paths(ears) == ["transcriptions"]


@pytest.mark.parametrize(
    ("file", "steps"),
    [
        ({"seconds": 40}, ["split", "part-1", "part-2", "merge", "write"]),
        ({"seconds": 1.5}, ["transcribe", "write"]),
        ({}, ["transcribe", "write"]),
    ],
)
async def test_a_plan_needs_only_the_length(ears: Ears, file: dict[str, Any], steps: list[str]) -> None:
    asked = {"endpoint": "transcription", "request": {"model": "ears", "file": file}}
    status, planned = await ears.front.post("/v1/plan", asked)
    assert status == 200, planned
    assert [step["id"] for step in planned["plan"]["steps"]] == steps
    assert planned["placements"][0]["placement"]["pool"] in ("cpu-a", "cpu-b")
    assert ears.asked == []


@pytest.mark.parametrize("request_", [{"model": "ears"}, {"model": "ears", "file": {"seconds": -1}}])
async def test_what_is_no_recording_is_not_planned(ears: Ears, request_: dict[str, Any]) -> None:
    status, answer = await ears.front.post("/v1/plan", {"endpoint": "transcription", "request": request_})
    assert status == 400
    assert answer["error"]["param"].startswith("file")
