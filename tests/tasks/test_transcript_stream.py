"""A transcript is passed on while it is heard: OpenAI's events, whatever the engine makes of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import BodyPartReader, web
from aiohttp.test_utils import TestServer

from infra.blobs import Blobs
from infra.errors import CoderAIError, EngineFailed, PayloadGone, UpstreamRefused
from infra.types import EngineId, Json, PoolId
from tasks.transcript_stream import stream_transcript
from tasks.types import TaskCall
from tests.fakes import make_entry
from tests.tasks.said import Said
from workers.engine.hearing import delta_event, done_event
from workers.live import Engine
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket
USAGE: dict[str, Json] = {"type": "tokens", "input_tokens": 100, "output_tokens": 3, "total_tokens": 103}
DONE = done_event("One. Two.", {"duration": 2.0, "usage": USAGE})


def events_in(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.removeprefix("data: ")) for event in stream.decode().split("\n\n") if event]


class Ears:
    """An engine on this loop: sends `pieces`, those after the first once it may `go_on`; breaks off at a None."""

    def __init__(self, store: Blobs) -> None:
        self.store, self.ref = store, store.put(b"RIFF" + bytes(1000))
        self.transport = Transport()
        self.client = Said()
        self.url = ""
        self.status = 200
        self.pieces: list[bytes | None] = [delta_event("One."), delta_event(" Two."), DONE]
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.left = asyncio.Event()
        self.asked: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        form: dict[str, str] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            form[str(part.name)] = f"{len(await part.read())} bytes" if part.filename else await part.text()
        self.asked.append(form)
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        try:
            for number, piece in enumerate(self.pieces):
                if number:
                    await self.go_on.wait()
                if piece is None:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                await response.write(piece)
        except asyncio.CancelledError:
            self.left.set()
            raise
        return response

    def call(self, **file: Json) -> TaskCall:
        engine = Engine(
            EngineId("cpu/m"), make_entry(), PoolId("cpu"), True, 1, self.url, {"Authorization": "Bearer k"}
        )
        inputs: dict[str, Json] = {
            "path": "/audio/transcriptions",
            "file": {"blob": self.ref, "name": "a.wav", "media_type": "audio/wav", "bytes": 1004, **file},
            "fields": [["response_format", "verbose_json"], ["stream", "true"]],
        }
        return TaskCall(inputs, self.transport, engine, self.client, (self.store,))


@pytest.fixture
async def ears(tmp_path: Path) -> AsyncIterator[Ears]:
    made, app = Ears(Blobs(tmp_path / "kept")), web.Application()
    app.router.add_post("/v1/audio/transcriptions", made.answer)
    async with TestServer(app, host="127.0.0.1", handler_cancellation=True) as server:
        made.url = str(server.make_url("/v1"))
        yield made
        await made.transport.close()


async def test_what_is_heard_goes_on_at_once_and_the_end_is_the_result_s(ears: Ears) -> None:
    ears.go_on.clear()
    hearing = asyncio.create_task(stream_transcript(ears.call()))
    async with asyncio.timeout(20):
        while not ears.client.started:
            await asyncio.sleep(0.01)
    assert events_in(ears.client.text) == [{"type": "transcript.text.delta", "delta": "One."}]
    assert not hearing.done()
    ears.go_on.set()
    result = await hearing
    assert "".join(event["delta"] for event in events_in(ears.client.text)) == "One. Two."
    assert (result.value, result.ending, result.units) == (b"", DONE, 2.0)
    assert ears.asked == [
        {"model": "m", "response_format": "verbose_json", "stream": "true", "file": "1004 bytes"},
    ]


async def test_silence_begins_a_stream_too(ears: Ears) -> None:
    ears.pieces = [done_event("", {"duration": 3.0})]
    result = await stream_transcript(ears.call())
    assert events_in(ears.client.text) == [{"type": "transcript.text.delta", "delta": ""}]
    assert events_in(result.ending)[0]["text"] == ""


async def test_events_come_in_whatever_pieces(ears: Ears) -> None:
    whole = b": ready\r\n\r\nevent: transcript.text.delta\r\ndata: " + delta_event("One.")[6:].strip() + b"\r\n\r\n"
    whole += delta_event(" Two.") + DONE + b"data: [DONE]\n\n"
    ears.pieces = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    result = await stream_transcript(ears.call())
    assert "".join(event["delta"] for event in events_in(ears.client.text)) == "One. Two."
    assert result.ending == DONE + b"data: [DONE]\n\n"


@pytest.mark.parametrize("tail", [b": bye", b"event: bye\n", b"retry: 5\r\n"])
async def test_what_is_left_after_the_last_event_says_nothing(ears: Ears, tail: bytes) -> None:
    named = b'data: {"type": "transcript.text.delta", "delta": "One. Two.", "error": null}\n\n'
    ears.pieces = [named, DONE + tail]
    assert (await stream_transcript(ears.call())).ending == DONE
    assert ears.client.pieces == [named]


@pytest.mark.parametrize(
    ("usage", "told"), [({"usage": USAGE}, USAGE), ({"usage": {"type": "duration", "seconds": 2}}, None), ({}, None)]
)
async def test_a_far_service_that_streams_nothing(ears: Ears, usage: dict[str, Json], told: Json) -> None:
    ears.pieces = [json.dumps({"text": "One. Two.", **usage}, indent=1).encode()]
    result = await stream_transcript(ears.call())
    assert events_in(ears.client.text) == [{"type": "transcript.text.delta", "delta": "One. Two."}]
    (done,) = events_in(result.ending)
    assert (done["type"], done["text"], done.get("usage")) == ("transcript.text.done", "One. Two.", told)


async def test_a_client_that_leaves_stops_the_engine(ears: Ears) -> None:
    ears.go_on.clear()
    hearing = asyncio.create_task(stream_transcript(ears.call()))
    async with asyncio.timeout(20):
        while not ears.client.started:
            await asyncio.sleep(0.01)
        hearing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hearing
        await ears.left.wait()


@pytest.mark.parametrize(
    ("status", "pieces", "error", "words"),
    [
        (400, [b'{"error": {"message": "cut off", "param": "file"}}'], UpstreamRefused, "cut off"),
        (500, [b'{"error": {"message": "oh"}}'], EngineFailed, "refused with HTTP 500: oh"),
        (200, [b"<html>"], EngineFailed, "no JSON"),
        (200, [b"data: {\n\n"], EngineFailed, "no JSON"),
        (200, [delta_event("One.")], EngineFailed, "before it was whole"),
        (200, [b"[]"], EngineFailed, "before it was whole"),
        (200, [delta_event("One."), None], EngineFailed, "broke off"),
        (200, [b'data: {"error": {"message": "too hot"}}\n\n'], EngineFailed, "too hot"),
        (200, [b"data: " + bytes(5 << 20)], EngineFailed, "more than 4 MiB"),
        (200, [DONE, *[b'data: ["%b"]\n\n' % (b"x" * (1 << 20))] * 5], EngineFailed, "more than 4 MiB"),
    ],
)
async def test_what_is_no_transcript(
    ears: Ears, status: int, pieces: list[bytes | None], error: type[CoderAIError], words: str
) -> None:
    ears.status, ears.pieces = status, pieces
    with pytest.raises(error, match=words):
        await stream_transcript(ears.call())


async def test_a_recording_that_is_not_kept_any_more(ears: Ears) -> None:
    with pytest.raises(PayloadGone, match="send it anew"):
        await stream_transcript(ears.call(blob=f"sha256:{'0' * 64}"))
    assert not ears.asked
