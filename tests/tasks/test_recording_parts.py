"""Where a recording is cut, who gets what of it, and the transcript of all parts."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import BodyPartReader, web
from aiohttp.test_utils import TestServer

from infra.blobs import Blobs
from infra.errors import EngineFailed, PayloadGone, UpstreamRefused
from infra.ffmpeg import RATE_HZ, SAMPLE_BYTES, decode
from infra.types import EngineId, Json, PoolId
from tasks.recording_parts import Window, allot, cut_recording, merge_transcripts, transcribe_part
from tasks.types import TaskCall
from tests.fakes import make_entry
from tests.sounds import wav
from workers.live import Engine
from workers.transport import Transport

SOUND = wav(12.0)
WINDOWS = [[0.5, 4.0], [4.5, 7.5], [9.5, 11.0]]


class Ears:
    """An engine that hears as it is told, and keeps the forms that it gets."""

    def __init__(self, store: Blobs) -> None:
        self.status = 200
        self.answers: dict[str, Json] = {
            "/v1/audio/windows": {"duration": 12.0, "language": "en", "windows": [list(each) for each in WINDOWS]},
            "/v1/audio/transcriptions": {"text": "hello", "segments": []},
        }
        self.forms: list[dict[str, Any]] = []
        self.engine = Engine(EngineId("cpu/m"), make_entry(), PoolId("cpu"), True, 1, headers={})
        self.transport = Transport()
        self.stores = (store,)
        self.ref = store.put(SOUND)

    async def handle(self, request: web.Request) -> web.Response:
        form: dict[str, Any] = {"path": request.path}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            form[str(part.name)] = bytes(await part.read()) if part.filename else await part.text()
        self.forms.append(form)
        return web.Response(status=self.status, body=orjson.dumps(self.answers[request.path]))

    def call(self, **inputs: Json) -> TaskCall:
        file: Json = {"blob": self.ref, "name": "talk.wav", "media_type": "audio/wav", "bytes": len(SOUND)}
        whole: dict[str, Json] = {"path": "/audio/transcriptions", "file": file, "fields": [["prompt", "CoderAI"]]}
        return TaskCall(whole | inputs, self.transport, self.engine, None, self.stores)

    def cut(self, **inputs: Json) -> TaskCall:
        asked: dict[str, Json] = {"language": None, "window_s": 30.0, "sizes": [6, 6]}
        return self.call(**asked | inputs)


@pytest.fixture
async def ears(tmp_path: Path) -> AsyncIterator[Ears]:
    made = Ears(Blobs(tmp_path / "kept"))
    app = web.Application(client_max_size=1 << 22)
    app.router.add_post("/v1/audio/{what}", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.engine.base_url = str(server.make_url("/v1"))
        yield made
        await made.transport.close()


@pytest.mark.enable_socket
async def test_the_cut_is_made_where_an_engine_hears_nobody(ears: Ears) -> None:
    result = await cut_recording(ears.cut())
    assert result.value == {
        "ranges": [[0, 6], [6, 6]],
        "pieces": [[0.0, 4.25], [4.25, 11.5]],
        "duration": 12.0,
        "language": "en",
    }
    assert result.units == 12.0, "the whole recording, once"
    assert ears.forms == [{"path": "/v1/audio/windows", "window_s": "30.0", "file": SOUND}]
    await cut_recording(ears.cut(language="de"))
    assert ears.forms[1]["language"] == "de"


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("status", "answer", "error", "words"),
    [
        (400, {"error": {"message": "cut off", "param": "file"}}, UpstreamRefused, "cut off"),
        (500, {"error": {"message": "oh"}}, EngineFailed, "refused with HTTP 500: oh"),
        (200, {}, EngineFailed, "no result that can be merged"),
        (200, {"windows": [], "duration": "long"}, EngineFailed, "how long the recording is"),
        (200, {"windows": [[1]], "duration": 3.0}, EngineFailed, "the cut of this recording cannot be read"),
    ],
)
async def test_what_is_no_cut(ears: Ears, status: int, answer: Json, error: type[Exception], words: str) -> None:
    ears.status, ears.answers["/v1/audio/windows"] = status, answer
    with pytest.raises(error, match=words):
        await cut_recording(ears.cut())


CUT: dict[str, Json] = {
    "ranges": [[0, 6], [6, 6], [12, 1]],
    "pieces": [[0.0, 4.25], [4.25, 11.5], None],
    "duration": 12.0,
    "language": "en",
}


@pytest.mark.enable_socket
async def test_a_part_sends_its_piece(ears: Ears) -> None:
    result = await transcribe_part(ears.call(number=2, split=CUT))
    assert (result.value, result.items) == ({"text": "hello", "segments": []}, 7)
    form = ears.forms[0]
    first, last = (round(seconds * RATE_HZ) * SAMPLE_BYTES for seconds in (4.25, 11.5))
    assert decode(form.pop("file")) == decode(SOUND)[first:last]
    assert form == {"path": "/v1/audio/transcriptions", "model": "m", "prompt": "CoderAI", "language": "en"}


@pytest.mark.enable_socket
async def test_a_language_that_was_asked_for_is_not_what_was_heard(ears: Ears) -> None:
    await transcribe_part(ears.call(number=1, split=CUT, fields=[["language", "de"]]))
    assert ears.forms[0]["language"] == "de"


@pytest.mark.enable_socket
async def test_a_part_without_a_piece_asks_nobody(ears: Ears) -> None:
    result = await transcribe_part(ears.call(number=3, split=CUT))
    assert (result.value, result.items, ears.forms) == ({"text": ""}, 0, [])


@pytest.mark.enable_socket
async def test_a_recording_that_is_gone(ears: Ears) -> None:
    gone: Json = {"blob": f"sha256:{'0' * 64}", "name": "a", "media_type": "", "bytes": 1}
    with pytest.raises(PayloadGone):
        await transcribe_part(ears.call(number=1, split=CUT, file=gone))


def segment(start: float, end: float, text: str) -> Json:
    return {"id": 0, "seek": 10, "start": start, "end": end, "text": text, "avg_logprob": -0.1}


def word(text: str, start: float) -> Json:
    return {"word": text, "start": start, "end": start + 0.2}


async def merged(ears: Ears, **parts: Json) -> Any:
    none: Json = {"text": ""}
    inputs: dict[str, Json] = {"task": "transcribe", "split": CUT, "part-1": none, "part-2": none, "part-3": none}
    named = {name.replace("_", "-"): value for name, value in parts.items()}
    return (await merge_transcripts(TaskCall(inputs | named, ears.transport))).value


async def test_times_are_those_of_the_whole_recording(ears: Ears) -> None:
    one: Json = {"text": "One. Two.", "segments": [segment(0.5, 2.0, " One."), segment(2.0, 4.0, " Two.")],
                 "words": [word("One.", 0.5), word("Two.", 2.0)]}  # fmt: skip
    two: Json = {"text": "Three.", "segments": [segment(0.25, 3.0, " Three.")], "words": [word("Three.", 0.25)]}
    whole = await merged(ears, part_1=one, part_2=two)
    assert whole["text"] == "One. Two. Three."
    assert [(each["id"], each["seek"], each["start"], each["end"]) for each in whole["segments"]] == [
        (0, 10, 0.5, 2.0),
        (1, 10, 2.0, 4.0),
        (2, 435, 4.5, 7.25),
    ]
    assert [(each["word"], each["start"], each["end"]) for each in whole["words"]] == [
        ("One.", 0.5, 0.7),
        ("Two.", 2.0, 2.2),
        ("Three.", 4.5, 4.7),
    ]
    assert (whole["task"], whole["language"], whole["duration"]) == ("transcribe", "en", 12.0)


async def test_texts_go_on_as_their_segments_say(ears: Ears) -> None:
    chinese = await merged(
        ears,
        part_1={"text": "你好", "segments": [segment(0, 1, "你好")]},
        part_2={"text": "世界", "segments": [segment(0, 1, "世界")]},
    )
    assert chinese["text"] == "你好世界"
    assert (await merged(ears, part_1={"text": "one"}, part_2={"text": "two"}))["text"] == "one two"


async def test_silence_has_no_words(ears: Ears) -> None:
    whole = await merged(ears)
    assert (whole["text"], whole["segments"], whole["words"]) == ("", [], [])


@pytest.mark.parametrize("part", [{"text": "a", "segments": [{"text": "a"}]}, {"text": "a", "words": 3}, [1]])
async def test_what_cannot_be_merged(ears: Ears, part: Json) -> None:
    with pytest.raises(EngineFailed, match="no result that can be merged"):
        await merged(ears, part_1=part)


def counted(lengths: list[float], shares: list[float]) -> list[float]:
    """Seconds of speech that each part gets of windows of these lengths, which are a second apart."""
    windows: list[Window] = []
    at = 1.0
    for length in lengths:
        windows.append(Window(at, at + length))
        at += length + 1.0
    pieces = allot(windows, shares, at)
    heard = [piece for piece in pieces if piece is not None]
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(heard))
    assert all(any(a <= window.start_s and window.end_s <= b for a, b in heard) for window in windows)
    return [
        sum(window.end_s - window.start_s for window in windows if piece and piece[0] <= window.start_s < piece[1])
        for piece in pieces
    ]


@pytest.mark.parametrize(
    ("lengths", "shares", "expected"),
    [
        ([30, 30, 30, 30], [60, 60], [60, 60]),
        ([30, 30, 30, 30], [90, 30], [90, 30]),
        ([28, 20, 25, 30, 7], [60, 60], [48, 62]),
        ([30, 10], [20, 20], [30, 10]),
        ([30], [20, 20], [30, 0]),
        ([10, 10, 10], [1, 100], [0, 30]),
        ([], [20, 20], [0, 0]),
        ([5], [1, 1, 1], [5, 0, 0]),
    ],
)
def test_windows_go_by_shares(lengths: list[float], shares: list[float], expected: list[float]) -> None:
    assert counted(lengths, shares) == pytest.approx(expected)


def test_nobody_takes_longer_than_must_be() -> None:
    """Against every way of giving five windows to two parts."""
    lengths = [12.0, 29.0, 8.0, 17.0, 22.0]
    best = min(max(sum(lengths[:at]) / 2, sum(lengths[at:])) for at in range(len(lengths) + 1))
    one, two = counted(lengths, [2, 1])
    assert max(one / 2, two) == pytest.approx(best)


def test_a_part_reaches_into_the_silence_and_no_further() -> None:
    windows = [Window(0.2, 1.0), Window(1.2, 2.0), Window(9.0, 10.0)]
    assert allot(windows, [1, 1, 1], 30.0) == [(0.0, 1.1), (1.1, 2.5), (8.5, 10.5)]
