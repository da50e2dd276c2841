"""Recordings over HTTP: to the disk, to an engine that hears, and away again."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import BodyPartReader, web

from tests.api.conftest import Front, StartFront
from tests.sounds import wav

pytestmark = pytest.mark.enable_socket
EARS = {"name": "ears", "path": "/weights/ears", "format": "whisper", "capabilities": ["stt"], "weights_bytes": 1000}
PATH = "/v1/audio/transcriptions"
SOUND = wav(1.0)
HEARD = {"task": "transcribe", "language": "en", "duration": 1.0, "text": "hello", "segments": [], "words": []}


class Ears:
    """An engine that hears the same in everything; `forms` are what it was sent."""

    def __init__(self) -> None:
        self.forms: list[dict[str, Any]] = []
        self.wait = asyncio.Event()
        self.wait.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        form: dict[str, Any] = {"path": request.path}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            form[str(part.name)] = bytes(await part.read()) if part.filename else await part.text()
        self.forms.append(form)
        await self.wait.wait()
        return web.json_response(HEARD)


async def started(start_front: StartFront, ears: Ears, **sections: Any) -> Front:
    front = await start_front([EARS, {"name": "talker", "service_url": "http://127.0.0.1:9"}], **sections)
    front.children.answer = ears.answer
    return front


async def post(
    front: Front, data: bytes | None = SOUND, path: str = PATH, headers: dict[str, str] | None = None, **fields: str
) -> tuple[int, bytes, str]:
    form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
    for name, value in ({"model": "ears"} | fields).items():
        form.add_field(name, value)
    if data is not None:
        form.add_field("file", io.BytesIO(data), filename="../../speech.wav")
    sent = front.headers() | (headers or {})
    async with front.session.post(front.url + path, data=form, headers=sent) as answer:
        return answer.status, await answer.read(), answer.headers["Content-Type"]


def blobs(front: Front, *folders: str) -> list[Path]:
    return [path for folder in folders for path in front.settings.at(folder).rglob("*") if path.is_file()]


async def gone(front: Front) -> None:
    """Wait until no file of a request is left: it goes in the moment in which the answer is there."""
    for _ in range(200):
        if not (left := blobs(front, "passing", "payloads", "jobs")):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(left)


async def test_a_recording_becomes_text_and_lies_with_its_run(start_front: StartFront) -> None:
    ears = Ears()
    front = await started(start_front, ears)
    status, body, kind = await post(front, language="English")
    assert (status, kind) == (200, "application/json")
    assert json.loads(body) == {"text": "hello", "usage": {"type": "duration", "seconds": 1}}
    assert ears.forms[0]["file"] == SOUND
    assert (ears.forms[0]["path"], ears.forms[0]["language"]) == (PATH, "en")
    assert [path.read_bytes() for path in blobs(front, "payloads")] == [SOUND]
    lines = [line for segment in front.settings.at("spool").iterdir() for line in segment.read_bytes().splitlines()]
    request = next(json.loads(line)["payload"]["request"] for line in lines if b'"flow":"transcription"' in line)
    assert request["file"]["name"] == "speech.wav"
    assert len(json.dumps(request)) < 1000


@pytest.mark.parametrize(
    ("form", "kind", "begins"),
    [
        ("text", "text/plain; charset=utf-8", b"hello\n"),
        ("vtt", "text/plain; charset=utf-8", b"WEBVTT"),
        ("verbose_json", "application/json", b'{"task":"transcribe"'),
    ],
)
async def test_each_form_has_its_media_type(start_front: StartFront, form: str, kind: str, begins: bytes) -> None:
    front = await started(start_front, Ears())
    status, body, got = await post(front, response_format=form)
    assert (status, got) == (200, kind)
    assert body.startswith(begins)


async def test_a_translation_has_its_own_path(start_front: StartFront) -> None:
    ears = Ears()
    front = await started(start_front, ears)
    assert (await post(front, path="/v1/audio/translations"))[0] == 200
    assert ears.forms[0]["path"] == "/v1/audio/translations"


async def test_without_a_record_nothing_of_it_stays(start_front: StartFront) -> None:
    ears = Ears()
    ears.wait.clear()
    front = await started(start_front, ears, record={"payloads": "none"})
    first, second = asyncio.create_task(post(front)), asyncio.create_task(post(front))
    while len(ears.forms) < 2:
        await asyncio.sleep(0.01)
    assert len(blobs(front, "passing")) == 1
    ears.wait.set()
    assert (await first)[0] == (await second)[0] == 200
    await gone(front)


async def test_a_client_that_leaves_takes_its_recording_along(start_front: StartFront) -> None:
    ears = Ears()
    ears.wait.clear()
    front = await started(start_front, ears, record={"payloads": "none"})
    asking = asyncio.create_task(post(front))
    while not ears.forms:
        await asyncio.sleep(0.01)
    asking.cancel()
    await gone(front)
    engine = next(engine for engine in front.services.fleet.engines() if engine.model == "ears")
    assert engine.in_flight == 0
    ears.wait.set()


@pytest.mark.parametrize("payloads", ["none", "all"])
@pytest.mark.parametrize(
    ("data", "fields", "status", "param"),
    [
        (None, {}, 400, "file"),
        (b"", {}, 400, "file"),
        (b"#EXTM3U\nfile:///etc/passwd", {}, 400, "file"),
        (SOUND, {"model": "nobody"}, 404, "model"),
        (SOUND, {"model": "talker"}, 400, "model"),
        (SOUND, {"response_format": "docx"}, 400, "response_format"),
        (SOUND, {"prompt": "x" * 5000}, 400, "prompt"),
        (SOUND + bytes(2 << 20), {}, 413, "file"),
    ],
)
async def test_what_is_wrong_is_named_and_leaves_nothing(
    start_front: StartFront, data: bytes | None, fields: dict[str, str], status: int, param: str, payloads: str
) -> None:
    ears = Ears()
    front = await started(start_front, ears, record={"payloads": payloads}, server={"max_body_mb": 1})
    got, body, _kind = await post(front, data, PATH, None, **fields)
    assert got == status, body
    assert json.loads(body)["error"]["param"] == param
    await gone(front)
    assert not ears.forms


async def test_json_is_no_form_and_nobody_names_a_file_of_ours(start_front: StartFront) -> None:
    front = await started(start_front, Ears())
    status, body = await front.post(PATH, {"model": "ears", "file": {"blob": f"sha256:{'0' * 64}"}})
    assert (status, body["error"]["code"]) == (400, "invalid_content_type")


async def test_a_plan_shows_both_steps(start_front: StartFront) -> None:
    front = await started(start_front, Ears())
    file = {"blob": f"sha256:{'0' * 64}", "name": "a.wav", "media_type": "audio/wav", "bytes": 1}
    request = {"model": "ears", "task": "transcribe", "file": file}
    status, body = await front.post("/v1/plan", {"endpoint": "transcription", "request": request})
    assert status == 200, body
    assert [step["task"] for step in body["plan"]["steps"]] == ["transcribe", "write_transcript"]
