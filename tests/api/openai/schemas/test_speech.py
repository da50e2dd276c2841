"""What a request for speech may hold."""

import pytest

from api.openai.schemas import speech
from api.openai.schemas.shared import Body
from infra.errors import InvalidRequest

BODY: Body = {"model": "joe", "input": "Hello there.", "voice": "alloy"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"voice": {"id": "voice_1"}},
        {"voice": None, "speed": None, "response_format": None, "stream_format": None, "instructions": None},
        {"speed": 0.25, "response_format": "opus", "stream_format": "sse", "instructions": "cheerfully"},
        {"speed": 4, "stream_format": "audio", "user": "u"},
        {"input": "😀"},
        {"input": "x" * speech.MAX_CHARS},
    ],
)
def test_what_openai_s_clients_send(fields: Body) -> None:
    speech.check({**BODY, **fields})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": " \n…!?"}, "input"),
        ({"input": "\0\x07"}, "input"),
        ({"input": 7}, "input"),
        ({"input": ["Hello"]}, "input"),
        ({"input": "x" * (speech.MAX_CHARS + 1)}, "input"),
        ({"input": "x" * 60_000, "response_format": "wav"}, "input"),
        ({"input": "x" * 60_000, "speed": 0.25}, "input"),
        ({"voice": ""}, "voice"),
        ({"voice": 7}, "voice"),
        ({"voice": {"name": "joe"}}, "voice.id"),
        ({"response_format": "ogg"}, "response_format"),
        ({"stream_format": "chunks"}, "stream_format"),
        ({"speed": 0}, "speed"),
        ({"speed": 4.5}, "speed"),
        ({"speed": float("nan")}, "speed"),
        ({"speed": "fast"}, "speed"),
        ({"stream": True}, "stream"),
    ],
)
def test_what_is_wrong_is_named(fields: Body, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        speech.check({**BODY, **fields})
    assert caught.value.param == param


def test_a_far_service_may_know_more() -> None:
    speech.check({**BODY, "emotion": "joy"}, unknown_fields=True)
    with pytest.raises(InvalidRequest, match="emotion"):
        speech.check({**BODY, "emotion": "joy"})
