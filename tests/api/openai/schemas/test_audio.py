"""A transcription's form, from texts to values."""

import pytest

from api.multipart import Form
from api.openai.schemas.audio import body_of, check
from infra.errors import InvalidRequest
from infra.types import Json

FILE: dict[str, Json] = {"blob": f"sha256:{'a' * 64}", "name": "a.wav", "media_type": "audio/wav", "bytes": 1}


def read(lists: dict[str, list[str]] | None = None, /, task_: str = "transcribe", **fields: str) -> dict[str, Json]:
    body = body_of(Form(fields={"model": "m", **fields}, lists=lists or {}), task_, FILE)
    check(body)
    return body


def test_texts_become_values() -> None:
    body = read({"timestamp_granularities[]": ["word", "segment"]}, temperature="0.2", language="English", prompt="")
    assert body == {
        "model": "m",
        "task": "transcribe",
        "file": FILE,
        "temperature": 0.2,
        "language": "en",
        "timestamp_granularities": ["word", "segment"],
    }
    assert read(timestamp_granularities="word")["timestamp_granularities"] == ["word"]
    assert read(stream="false", chunking_strategy="auto").keys() == {"model", "task", "file"}
    assert read(stream="True", response_format="text")["stream"] is True


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"temperature": "1.5"}, "temperature"),
        ({"language": "klingon"}, "language"),
        ({"response_format": "docx"}, "response_format"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"timestamp_granularities": "syllable"}, "timestamp_granularities.0"),
        ({"stream": "perhaps"}, "stream"),
        ({"stream": "true", "task_": "translate"}, "stream"),
        ({"stream": "true", "response_format": "srt"}, "response_format"),
        ({"stream": "true", "response_format": "verbose_json"}, "response_format"),
        ({"chunking_strategy": "mine"}, "chunking_strategy"),
        ({"model": ""}, "model"),
        ({"promt": "x"}, "promt"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, str], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(**fields)
    assert refused.value.param == param


def test_nobody_names_the_file_or_the_task_himself() -> None:
    assert read(task="translate", file="/etc/passwd")["file"] == FILE
    assert read(task="translate")["task"] == "transcribe"
