"""A recording to an engine, and the transcript to its form."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import BodyPartReader, web
from aiohttp.test_utils import TestServer

from infra.blobs import Blobs
from infra.errors import EngineFailed, PayloadGone, UpstreamRefused
from infra.types import EngineId, Json, PoolId
from tasks.transcribe import safe_name, safe_type, transcribe, write_transcript
from tasks.types import TaskCall
from tests.fakes import make_entry
from workers.live import Engine
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket
SOUND = b"RIFF" + bytes(300_000)


class Far:
    """An engine that answers as it is told, and keeps the forms that it gets."""

    def __init__(self, store: Blobs) -> None:
        self.status, self.answer = 200, b'{"text": "hello"}'
        self.forms: list[list[tuple[str, Any]]] = []
        headers = {"Content-Type": "application/json", "Authorization": "Bearer k"}
        self.engine = Engine(
            EngineId("cpu/m"), make_entry(served_model="inner"), PoolId("cpu"), True, 1, headers=headers
        )
        self.transport = Transport()
        self.stores = (Blobs(store.root.parent / "empty"), store)
        self.ref = store.put(SOUND)

    async def handle(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer k"
        parts: list[tuple[str, Any]] = []
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            parts.append(
                (str(part.name), (part.filename, bytes(await part.read())) if part.filename else await part.text())
            )
        self.forms.append(parts)
        return web.Response(status=self.status, body=self.answer)

    def call(self, **file: Json) -> TaskCall:
        inputs: dict[str, Json] = {
            "path": "/audio/transcriptions",
            "file": {"blob": self.ref, "name": "a b.wav", "media_type": "audio/wav", "bytes": len(SOUND), **file},
            "fields": [["language", "en"], ["timestamp_granularities[]", "word"]],
        }
        return TaskCall(inputs, self.transport, self.engine, None, self.stores)


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[Far]:
    made = Far(Blobs(tmp_path / "kept"))
    app = web.Application(client_max_size=1 << 22)
    app.router.add_post("/v1/audio/transcriptions", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.engine.base_url = str(server.make_url("/v1"))
        yield made
        await made.transport.close()


async def test_the_engine_gets_a_form_with_the_recording(far: Far) -> None:
    result = await transcribe(far.call())
    assert result.value == {"text": "hello"}
    assert result.units == 0, "it did not say how long it is"
    assert far.forms == [
        [("model", "inner"), ("language", "en"), ("timestamp_granularities[]", "word"), ("file", ("a b.wav", SOUND))]
    ]


async def test_what_is_used_is_the_recording_s_length(far: Far) -> None:
    far.answer = b'{"text": "hello", "duration": 2.5}'
    assert (await transcribe(far.call())).units == 2.5


async def test_it_can_be_sent_again(far: Far) -> None:
    await transcribe(far.call())
    await transcribe(far.call())
    assert far.forms[0] == far.forms[1]


async def test_a_recording_that_is_not_kept_any_more(far: Far) -> None:
    with pytest.raises(PayloadGone, match="send it anew"):
        await transcribe(far.call(blob=f"sha256:{'0' * 64}"))
    assert not far.forms


@pytest.mark.parametrize(
    ("status", "answer", "error", "words"),
    [
        (400, b'{"error": {"message": "cut off", "param": "file"}}', UpstreamRefused, "cut off"),
        (500, b'{"error": {"message": "oh"}}', EngineFailed, "refused with HTTP 500: oh"),
        (200, b"<html>", EngineFailed, "did not answer in JSON"),
        (200, b'{"segments": []}', EngineFailed, "did not answer with a text"),
        (200, b"[]", EngineFailed, "did not answer with a text"),
    ],
)
async def test_what_is_no_transcript(far: Far, status: int, answer: bytes, error: type[Exception], words: str) -> None:
    far.status, far.answer = status, answer
    with pytest.raises(error, match=words):
        await transcribe(far.call())


async def test_an_engine_that_is_not_there(far: Far) -> None:
    far.engine.base_url = "http://127.0.0.1:9/v1"
    with pytest.raises(EngineFailed, match="did not answer"):
        await transcribe(far.call())


async def test_the_transcript_is_written_in_its_form(far: Far) -> None:
    inputs: dict[str, Json] = {"transcript": {"text": "hi"}, "format": "text", "granularities": []}
    result = await write_transcript(TaskCall(inputs, far.transport))
    assert (result.value, result.media_type) == (b"hi\n", "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("a.mp3", "a.mp3"),
        ("../../etc/passwd", "passwd"),
        ("c:\\x\\a.wav", "a.wav"),
        ('a"\r\nb.wav', "ab.wav"),
        ("", "audio"),
    ],
)
def test_a_name_is_no_path(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@pytest.mark.parametrize(
    ("media_type", "safe"),
    [
        ("audio/wav", "audio/wav"),
        ("audio/webm; codecs=opus", "audio/webm"),
        ("Audio/X-WAV", "Audio/X-WAV"),
        ("multipart/mixed", "application/octet-stream"),
        ("audio/\x01wav", "application/octet-stream"),
        ("audio/wav\n", "application/octet-stream"),
        ("audio/wäv", "application/octet-stream"),
        ("audio", "application/octet-stream"),
        ("", "application/octet-stream"),
    ],
)
def test_a_type_is_a_header_s(media_type: str, safe: str) -> None:
    assert safe_type(media_type) == safe
