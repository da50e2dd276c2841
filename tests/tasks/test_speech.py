"""An engine's samples become a file: whole, in pieces for a client, in parts that are joined."""

import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.blobs import Blobs
from infra.errors import EngineFailed, InvalidRequest, PayloadGone, UpstreamRefused
from infra.types import EngineId, Json, PoolId
from infra.wav import head
from tasks.speech import join_speech, speak, speak_far, speak_part
from tasks.types import TaskCall
from tests.fakes import make_entry
from tests.tasks.said import Said
from workers.live import Engine
from workers.transport import Transport
from workers.types import Capability, ModelFormat

pytestmark = pytest.mark.enable_socket
RATE_HZ = 22050
SOUND = bytes(range(256)) * 200


class Voice:
    """An engine on this loop: sends `pieces`, the last ones once it may `go_on`; breaks off at a None."""

    def __init__(self, home: Path) -> None:
        self.blobs = Blobs(home / "passing")
        self.transport = Transport()
        self.url = ""
        self.status = 200
        self.pieces: list[bytes | None] = [head(RATE_HZ, None) + SOUND[:1001], SOUND[1001:]]
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.asked: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.path == "/v1/audio/speech"
        self.asked.append(await request.json())
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        for number, piece in enumerate(self.pieces):
            if number:
                await self.go_on.wait()
            if piece is None:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(piece)
        return response

    def call(self, client: Said | None = None, parts: dict[str, Json] | None = None, **inputs: Json) -> TaskCall:
        entry = make_entry("joe", format=ModelFormat.PIPER, capabilities=(Capability.TTS,))
        engine = Engine(EngineId("cpu/joe"), entry, PoolId("cpu"), True, 1, self.url, {"Authorization": "Bearer k"})
        asked: dict[str, Json] = {"sentences": ["One.", "Two."], "voice": "alloy", "speed": 1.5, "stream": "audio"}
        return TaskCall(
            {**asked, "format": "wav", **inputs, **(parts or {})},
            self.transport,
            engine,
            client,
            (self.blobs,),
            self.blobs,
        )


@pytest.fixture
async def voice(tmp_path: Path) -> AsyncIterator[Voice]:
    made, app = Voice(tmp_path), web.Application()
    app.router.add_post("/v1/{path:.*}", made.answer)
    async with TestServer(app, host="127.0.0.1") as server:
        made.url = str(server.make_url("/v1"))
        yield made
        await made.transport.close()


def samples(whole: Json | bytes) -> bytes:
    assert isinstance(whole, bytes)
    with wave.open(io.BytesIO(whole)) as file:
        assert file.getframerate() == RATE_HZ
        return bytes(file.readframes(file.getnframes()))


async def test_without_a_client_that_waits_the_file_is_whole(voice: Voice) -> None:
    result = await speak(voice.call())
    assert samples(result.value) == SOUND
    assert (result.media_type, result.units) == ("audio/wav", 8)
    assert voice.asked == [{"input": ["One.", "Two."], "voice": "alloy", "speed": 1.5, "model": "joe"}]


async def test_a_client_that_is_to_have_it_whole_has_a_right_head(voice: Voice) -> None:
    client = Said()
    result = await speak(voice.call(client, stream=None))
    assert samples(result.value) == SOUND
    assert not client.started


@pytest.mark.parametrize("form", ["wav", "mp3"])
async def test_a_client_hears_the_beginning_while_the_rest_is_spoken(voice: Voice, form: str) -> None:
    voice.pieces = [head(RATE_HZ, None) + SOUND, SOUND]
    voice.go_on.clear()
    client = Said()
    speaking = asyncio.create_task(speak(voice.call(client, format=form)))
    async with asyncio.timeout(20):
        while sum(map(len, client.pieces)) < 2000:
            await asyncio.sleep(0.01)
    assert not speaking.done()
    voice.go_on.set()
    result = await speaking
    assert (result.value, result.ending) == (b"", b"")
    if form == "wav":
        assert client.text == head(RATE_HZ, None) + SOUND + SOUND


async def test_openai_s_events(voice: Voice) -> None:
    client = Said()
    result = await speak(voice.call(client, stream="sse"))
    events = [json.loads(line[6:]) for line in client.text.decode().split("\n\n") if line]
    assert {event["type"] for event in events} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(event["audio"]) for event in events) == head(RATE_HZ, None) + SOUND
    assert json.loads(result.ending[6:]) == {
        "type": "speech.audio.done",
        "usage": {"input_tokens": 8, "output_tokens": 0, "total_tokens": 8},
    }


async def test_nothing_to_be_heard(voice: Voice) -> None:
    voice.pieces = [head(RATE_HZ, None)]
    client = Said()
    with pytest.raises(InvalidRequest, match="nothing in 'input'") as refused:
        await speak(voice.call(client))
    assert refused.value.param == "input"
    assert not client.started


@pytest.mark.parametrize("pieces", [[b"{}"], [b"RIFF" + bytes(100)], [None], [head(RATE_HZ, None) + SOUND, None]])
async def test_an_engine_that_fails(voice: Voice, pieces: list[bytes | None]) -> None:
    voice.pieces = pieces
    for task in (speak, speak_part):
        with pytest.raises(EngineFailed):
            await task(voice.call())


async def test_an_engine_that_refuses(voice: Voice) -> None:
    voice.status = 400
    voice.pieces = [b'{"error": {"message": "no voice \'bob\'", "param": "voice", "code": "unknown_voice"}}']
    with pytest.raises(UpstreamRefused, match="bob") as refused:
        await speak(voice.call())
    assert (refused.value.status, refused.value.param) == (400, "voice")


async def test_parts_are_joined_in_order_with_nothing_between(voice: Voice) -> None:
    parts: dict[str, Json] = {}
    for number, sound in enumerate((SOUND, b"", SOUND[::-1]), 1):
        voice.pieces = [head(RATE_HZ, None) + sound]
        parts[f"part-{number}"] = (await speak_part(voice.call())).value  # type: ignore[assignment]
    assert parts["part-2"] == {"blob": voice.blobs.put(b""), "rate_hz": RATE_HZ, "bytes": 0}
    joined = await join_speech(voice.call(parts=parts))
    assert samples(joined.value) == SOUND + SOUND[::-1]
    assert joined.media_type == "audio/wav"


async def test_a_part_of_another_rate_is_as_long_at_the_first_one_s(voice: Voice) -> None:
    silence = bytes(2 * 16000)
    parts: dict[str, Json] = {
        "part-1": {"blob": voice.blobs.put(SOUND), "rate_hz": RATE_HZ, "bytes": len(SOUND)},
        "part-2": {"blob": voice.blobs.put(silence), "rate_hz": 16000, "bytes": len(silence)},
    }
    joined = samples((await join_speech(voice.call(parts=parts))).value)
    assert joined.startswith(SOUND)
    assert abs(len(joined) - len(SOUND) - 2 * RATE_HZ) < 200


async def test_parts_that_cannot_be_joined(voice: Voice) -> None:
    silent: dict[str, Json] = {"blob": voice.blobs.put(b""), "rate_hz": RATE_HZ, "bytes": 0}
    with pytest.raises(InvalidRequest, match="nothing in 'input'"):
        await join_speech(voice.call(parts={"part-1": silent}))
    with pytest.raises(EngineFailed, match="part-1"):
        await join_speech(voice.call(parts={"part-1": [1]}))
    with pytest.raises(EngineFailed, match="a part"):
        await join_speech(voice.call(parts={"part-1": silent | {"rate_hz": "x", "bytes": 9}}))
    gone: dict[str, Json] = {"blob": f"sha256:{0:064x}", "rate_hz": RATE_HZ, "bytes": 9}
    with pytest.raises(PayloadGone):
        await join_speech(voice.call(parts={"part-1": gone}))


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_far_service_s_bytes_are_passed_on_as_they_are(voice: Voice, streamed: bool) -> None:
    voice.pieces = [b"\xff\xf3 anything", b" at all"]
    client = Said() if streamed else None
    request: dict[str, Json] = {"input": "Hi.", "voice": "zoe", "response_format": "opus", "more": 1}
    result = await speak_far(voice.call(client, request=request))
    assert (client.text if client else result.value) == b"\xff\xf3 anything at all"
    assert (result.media_type, result.units) == ("audio/ogg", 3)
    assert voice.asked == [{**request, "model": "joe"}]
