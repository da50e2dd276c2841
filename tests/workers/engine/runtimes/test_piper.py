"""The runtime that speaks: what it refuses, and with piper itself what it says."""

import threading
from pathlib import Path

import pytest

from infra.errors import InvalidRequest, LoadFailed, NotInstalled
from infra.types import Json
from infra.wav import HEAD_BYTES, read_head
from tests.fakes import make_entry
from tests.workers.engine.launches import launch_of
from tests.workers.engine.piper.voices import joe, the_piper
from workers.engine.piper.child import Speaker
from workers.engine.runtimes import make_runtime
from workers.engine.runtimes import piper as module
from workers.engine.runtimes.piper import Piper, voice_file
from workers.engine.runtimes.protocol import Abandoned, Ask
from workers.types import Capability, ModelFormat

ENTRY = make_entry("joe", format=ModelFormat.PIPER, capabilities=(Capability.TTS,))


class FakeSpeaker(Speaker):
    """Says two samples a letter, and remembers how."""

    def __init__(self) -> None:
        super().__init__(Path("/none"), Path("/none"), 1)
        self.facts = self.facts.model_copy(update={"speakers": {"amy": 3, "bea": 5}})
        self.said: list[tuple[str, float, int]] = []

    def say(self, text: str, length_scale: float, speaker: int = 0) -> bytes:
        self.said.append((text, length_scale, speaker))
        return b"" if text == "..." else text.encode() * 4


@pytest.fixture
def speaker() -> FakeSpeaker:
    return FakeSpeaker()


@pytest.fixture
def piper(speaker: FakeSpeaker) -> Piper:
    made = Piper()
    made._speaker = speaker
    return made


def pieces(piper: Piper, **body: Json) -> list[bytes]:
    asked: dict[str, Json] = {"input": ["One.", "Two."], **body}
    reply = piper.routes()["/audio/speech"](Ask(asked))
    assert reply.media_type == "audio/wav"
    assert not isinstance(reply.body, bytes)
    return list(reply.body)


def test_each_sentence_is_sent_as_it_is_spoken(piper: Piper, speaker: FakeSpeaker) -> None:
    first, second = pieces(piper, input=["One.", "...", "Two."], speed=2, voice="bea")
    told = read_head(first)
    assert told is not None
    assert (told.rate_hz, told.data_bytes) == (22050, None)
    assert (first[HEAD_BYTES:], second) == (b"One." * 4, b"Two." * 4)
    assert speaker.said == [("One.", 0.5, 5), ("...", 0.5, 5), ("Two.", 0.5, 5)]


def test_silence_is_a_head_alone(piper: Piper) -> None:
    (only,) = pieces(piper, input=["..."])
    assert len(only) == HEAD_BYTES


@pytest.mark.parametrize("voice", [None, "default", "alloy", "marin"])
def test_openai_s_voices_are_the_usual_one(piper: Piper, speaker: FakeSpeaker, voice: str | None) -> None:
    pieces(piper, voice=voice)
    assert {number for _text, _scale, number in speaker.said} == {3}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "One."}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", 7]}, "input"),
        ({"input": ["x" * 5000]}, "input"),
        ({"speed": 0}, "speed"),
        ({"speed": True}, "speed"),
        ({"speed": "1"}, "speed"),
        ({"voice": "zoe"}, "voice"),
        ({"voice": 3}, "voice"),
    ],
)
def test_what_is_wrong_is_named(piper: Piper, body: dict[str, Json], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        pieces(piper, **body)
    assert refused.value.param == param


def test_an_unknown_voice_names_those_that_there_are(piper: Piper) -> None:
    with pytest.raises(InvalidRequest, match="default, amy, bea, alloy"):
        pieces(piper, voice="zoe")


def test_who_has_left_is_spoken_to_no_more(piper: Piper, speaker: FakeSpeaker) -> None:
    gone = threading.Event()
    ask = Ask({"input": ["One.", "Two."]}, gone=gone)
    reply = piper.routes()["/audio/speech"](ask)
    assert not isinstance(reply.body, bytes)
    assert next(reply.body)
    assert (ask.progress.reached().phase, ask.progress.reached().total) == ("speaking", 2)
    gone.set()
    with pytest.raises(Abandoned):
        next(reply.body)
    assert len(speaker.said) == 1


def test_where_a_voice_is(tmp_path: Path) -> None:
    path = tmp_path / "amy.onnx"
    for wrong in (path, tmp_path):
        with pytest.raises(LoadFailed):
            voice_file(wrong)
    path.touch()
    with pytest.raises(LoadFailed, match=r"\.onnx\.json"):
        voice_file(path)
    (tmp_path / "amy.onnx.json").touch()
    assert voice_file(path) == voice_file(tmp_path) == path
    (tmp_path / "bea.onnx").touch()
    with pytest.raises(LoadFailed, match="2 voices"):
        voice_file(tmp_path)


def test_without_piper_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> Path:
        raise NotInstalled("run `coderai engines install piper`")

    monkeypatch.setattr(module, "require_piper", nothing)
    runtime = make_runtime(ENTRY)
    assert isinstance(runtime, Piper)
    with pytest.raises(NotInstalled, match="coderai engines install piper"):
        runtime.load(launch_of(ENTRY, 1))


@pytest.mark.slow
def test_the_packaged_voice(tmp_path: Path) -> None:
    assert the_piper().exists()
    runtime = Piper()
    runtime.load(launch_of(ENTRY.model_copy(update={"path": joe()}), 1))
    try:
        first, second = pieces(runtime, input=["The river was calm.", "She opened the window."])
        assert len(first) > 30_000
        assert len(second) > 30_000
        broken = tmp_path / "broken.onnx"
        broken.write_bytes(b"nonsense")
        (tmp_path / "broken.onnx.json").write_bytes(Path(f"{joe()}.json").read_bytes())
        with pytest.raises(LoadFailed, match="cannot be loaded"):
            Piper().load(launch_of(ENTRY.model_copy(update={"path": broken}), 1))
    finally:
        assert runtime._speaker is not None
        runtime._speaker.close()
