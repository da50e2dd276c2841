"""Speech over HTTP: as it is spoken, as a whole, in parts; and what a client gets when it breaks off."""

import asyncio
import io
import json
import wave
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from api.openai.speech import SPEAKS, delivery
from infra.wav import head
from tests.api.conftest import Front, StartFront

pytestmark = pytest.mark.enable_socket
VOICE = {"name": "joe", "path": "/voices/joe", "format": "piper", "capabilities": ["tts"], "weights_bytes": 1000}
CARDS = [{"name": name, "backend": "cpu", "memory_mib": 4096} for name in ("cpu-a", "cpu-b")]
RATE_HZ = 16000
WORDS = "One of us. Two of us. Three of us. Four of us. Five of us. Six of us. Seven of us. Eight of us."


class Voice:
    """An engine that says each letter as two samples; `fail` says after how many sentences it breaks off."""

    def __init__(self) -> None:
        self.fail: int | None = None
        self.pace_s = 0.0
        self.refuse: dict[str, Any] | None = None
        self.asked: list[list[str]] = []
        self.pools: set[str] = set()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body["input"])
        if self.refuse is not None:
            return web.json_response({"error": self.refuse}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "audio/wav"})
        await response.prepare(request)
        await response.write(head(RATE_HZ, None))
        for number, sentence in enumerate(body["input"]):
            if number == self.fail:
                assert request.transport is not None
                request.transport.abort()
                break
            await response.write(sound(sentence))
            await self.go_on.wait()
            await asyncio.sleep(self.pace_s)
        return response


def sound(sentence: str) -> bytes:
    return b"".join(letter.encode() * 4 for letter in sentence)


async def started(start_front: StartFront, voice: Voice, **sections: Any) -> Front:
    rows = [VOICE | {"distribute": {"min_items": 4}}, {"name": "talker", "service_url": "http://127.0.0.1:9"}]
    front = await start_front(rows, **sections)
    front.children.answer = voice.answer
    return front


def body_of(**fields: Any) -> dict[str, Any]:
    return {"model": "joe", "input": "Hello there. And again.", "voice": "alloy", "response_format": "wav"} | fields


async def post(front: Front, **fields: Any) -> tuple[int, Any, bytes]:
    """Status, headers and content."""
    url = front.url + SPEAKS
    async with front.session.post(url, json=body_of(**fields), headers=front.headers()) as answer:
        return answer.status, answer.headers, await answer.read()


async def test_a_whole_file_has_its_length(start_front: StartFront) -> None:
    front = await started(start_front, Voice())
    status, headers, content = await post(front)
    assert (status, headers["content-type"]) == (200, "audio/wav")
    assert headers["content-length"] == str(len(content))
    assert headers["x-coderai-engine"] == "cpu/joe"
    with wave.open(io.BytesIO(content)) as file:
        assert file.getframerate() == RATE_HZ
        assert file.readframes(file.getnframes()) == sound("Hello there.") + sound("And again.")


async def test_a_file_is_sent_as_it_is_spoken(start_front: StartFront) -> None:
    voice = Voice()
    voice.go_on.clear()
    front = await started(start_front, voice)
    fields = body_of(stream_format="audio")
    async with front.session.post(front.url + SPEAKS, json=fields, headers=front.headers()) as answer:
        assert (answer.status, answer.headers["content-type"]) == (200, "audio/wav")
        first = await answer.content.readexactly(44 + len(sound("Hello there.")))
        assert first == head(RATE_HZ, None) + sound("Hello there.")
        voice.go_on.set()
        assert await answer.content.read() == sound("And again.")


async def test_openai_s_events(start_front: StartFront) -> None:
    front = await started(start_front, Voice())
    status, headers, content = await post(front, stream_format="sse")
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    events = [json.loads(line[6:]) for line in content.decode().split("\n\n") if line]
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert events[-1]["type"] == "speech.audio.done"


async def test_half_a_file_is_not_taken_for_a_whole_one(
    start_front: StartFront, caplog: pytest.LogCaptureFixture
) -> None:
    voice = Voice()
    voice.fail = 1
    front = await started(start_front, voice)
    with pytest.raises(aiohttp.ClientError):
        await post(front, stream_format="audio")
    assert len(voice.asked) == 1  # what was begun cannot be begun elsewhere
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
    assert (await front.get("/healthz"))[0] == 200
    status, _headers, content = await post(front, stream_format="sse")
    assert status == 200
    assert json.loads(content.decode().split("data: ")[-1])["error"]["code"] == "engine_failed"


async def test_an_error_before_the_first_byte_has_its_status(start_front: StartFront) -> None:
    voice = Voice()
    front = await started(start_front, voice)
    voice.fail = 0
    for form in ("wav", "mp3"):
        status, headers, content = await post(front, response_format=form, stream_format="audio")
        assert (status, headers["content-type"]) == (502, "application/json")
        assert json.loads(content)["error"]["code"] == "engine_failed"
    voice.refuse = {"message": "no voice 'bob'", "param": "voice", "code": "unknown_voice"}
    status, _headers, content = await post(front, voice="bob")
    assert (status, json.loads(content)["error"]["param"]) == (400, "voice")


async def test_a_client_that_leaves_stops_the_engine(start_front: StartFront) -> None:
    voice = Voice()
    voice.pace_s = 0.02
    front = await started(start_front, voice)
    fields = body_of(input=WORDS * 100, stream_format="audio")
    async with front.session.post(front.url + SPEAKS, json=fields, headers=front.headers()) as answer:
        await answer.content.readexactly(50)
    for _ in range(200):
        if not any(engine.in_flight for engine in front.services.fleet.engines()):
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("the slot is still taken")


@pytest.mark.parametrize("form", ["wav", "mp3"])
async def test_a_text_over_two_engines_is_one_file_in_order(start_front: StartFront, form: str) -> None:
    voice = Voice()
    front = await started(start_front, voice, cards={"engine_specs": CARDS})
    single = (await post(front, input=WORDS, response_format=form, stream_format="audio"))[2]
    await post(front, input=WORDS * 45)  # so much that it is loaded on both
    assert len(front.services.fleet.engines()) == 2
    voice.asked.clear()
    status, headers, content = await post(front, input=WORDS, response_format=form)
    assert (status, headers["content-length"]) == (200, str(len(content)))
    assert len(voice.asked) == 2
    assert sorted(sentence for part in voice.asked for sentence in part) == sorted(WORDS.replace(". ", ".|").split("|"))
    assert content[44:] == single[44:] if form == "wav" else content == single


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"input": ""}, "input"), ({"speed": 0}, "speed"), ({"model": "talker"}, "model"), ({"colour": "red"}, "colour")],
)
async def test_what_is_wrong_is_named(start_front: StartFront, fields: dict[str, Any], param: str) -> None:
    voice = Voice()
    front = await started(start_front, voice)
    status, _headers, content = await post(front, **fields)
    assert (status, json.loads(content)["error"]["param"]) == (400, param)
    assert not voice.asked


async def test_characters_are_counted(start_front: StartFront) -> None:
    front = await started(start_front, Voice())
    await post(front)
    async with front.session.get(f"{front.url}/metrics", headers=front.headers("admin")) as answer:
        page = await answer.text()
    line = next(line for line in page.splitlines() if line.startswith("coderai_units_total"))
    assert 'model="joe"' in line
    assert 'kind="speech"' in line
    assert float(line.rsplit(" ", 1)[1]) == len("Hello there.") + len("And again.")


def test_each_format_has_its_media_type() -> None:
    assert delivery({"response_format": "opus"}).flows
    assert not delivery({"stream_format": "sse"}).flows
