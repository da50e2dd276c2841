"""What can be told of whisper without its weights; with them: `tests/system/test_transcription.py`."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from infra.errors import InvalidRequest, LoadFailed
from infra.types import Json
from tests.fakes import make_entry
from tests.sounds import wav
from tests.system.speech import RECORDING, SENTENCES
from tests.workers.engine.launches import launch_of
from workers.engine.runtimes.protocol import Abandoned, Ask, Upload
from workers.engine.runtimes.whisper import Whisper, _wanted
from workers.types import Capability, ModelFormat


def test_a_folder_without_weights_cannot_be_loaded(tmp_path: Path) -> None:
    entry = make_entry(path=tmp_path, format=ModelFormat.WHISPER, capabilities=(Capability.STT,))
    with pytest.raises(LoadFailed, match="is no folder with a model"):
        Whisper().load(launch_of(entry))
    tmp_path.joinpath("model.bin").write_bytes(b"garbage")
    with pytest.raises(LoadFailed, match="cannot be loaded"):
        Whisper().load(launch_of(entry))


def test_its_paths() -> None:
    assert set(Whisper().routes()) == {"/audio/transcriptions", "/audio/translations", "/audio/windows"}


def test_a_form_s_fields() -> None:
    wanted = _wanted(Ask({"language": ["en"], "prompt": ["CoderAI"], "temperature": ["0.5"]}), "transcribe")
    assert (wanted.language, wanted.prompt, wanted.temperatures, wanted.times) == ("en", "CoderAI", (0.5,), False)
    plain = _wanted(Ask({"timestamp_granularities[]": ["word"], "temperature": ["0"]}), "translate")
    assert (plain.task, plain.language, plain.temperatures[0], plain.times) == ("translate", None, 0.0, True)
    assert len(plain.temperatures) > 1
    with pytest.raises(InvalidRequest, match="'temperature' must be a number"):
        _wanted(Ask({"temperature": ["hot"]}), "transcribe")


@pytest.mark.parametrize("path", ["/audio/transcriptions", "/audio/windows"])
def test_exactly_one_file(path: str) -> None:
    handler = Whisper().routes()[path]
    file = Upload("file", "a.wav", "audio/wav", wav(0.1))
    for files in ((), (file, file), (Upload("other", "a", "", b"x"),)):
        with pytest.raises(InvalidRequest, match="send one audio file"):
            handler(Ask({}, files))


def test_silence_needs_no_weights() -> None:
    reply = Whisper().routes()["/audio/transcriptions"](Ask({}, (Upload("file", "a", "", wav(2.0, hz=0)),)))
    assert isinstance(reply.body, bytes)
    assert b'"text":""' in reply.body
    assert b'"duration":2.0' in reply.body


def test_a_stream_of_silence_needs_none_either() -> None:
    ask = Ask({"stream": ["true"]}, (Upload("file", "a", "", wav(2.0, hz=0)),))
    reply = Whisper().routes()["/audio/transcriptions"](ask)
    assert not isinstance(reply.body, bytes)
    (event,) = reply.body
    done = orjson.loads(event.removeprefix(b"data: "))
    assert reply.media_type == "text/event-stream"
    assert (done["type"], done["text"], done["duration"]) == ("transcript.text.done", "", 2.0)
    assert (done["usage"]["input_tokens"], done["usage"]["output_tokens"]) == (100, 0)


def windows_of(data: bytes, **fields: str) -> Any:
    body: dict[str, Json] = {name: [value] for name, value in fields.items()}
    reply = Whisper().routes()["/audio/windows"](Ask(body, (Upload("file", "a", "", data),)))
    assert isinstance(reply.body, bytes)
    return orjson.loads(reply.body)


def test_silence_has_no_windows() -> None:
    assert windows_of(wav(2.0, hz=0)) == {"duration": 2.0, "language": "", "windows": []}


def test_windows_of_speech_need_no_weights_where_the_language_is_named() -> None:
    answer = windows_of(RECORDING.read_bytes(), language="en", window_s="10")
    assert (answer["language"], round(answer["duration"])) == ("en", 37)
    windows = answer["windows"]
    assert len(windows) > 3
    assert all(end_s - start_s <= 10 for start_s, end_s in windows)
    edges = [edge_s for window in windows for edge_s in window]
    assert edges == sorted(edges)
    assert not any(start_s < edge_s < end_s - 0.3 for start_s, end_s, _said in SENTENCES for edge_s in edges[1:-1:2])
    one = windows_of(RECORDING.read_bytes(), language="en")["windows"]
    assert len(one) == 2
    with pytest.raises(InvalidRequest, match="'window_s' must be a number"):
        windows_of(wav(0.1), window_s="long")


def test_a_client_that_has_left_ends_it() -> None:
    ask = Ask({}, (Upload("file", "a", "", wav(0.5)),))
    ask.gone.set()
    with pytest.raises(Abandoned):
        Whisper().routes()["/audio/transcriptions"](ask)
