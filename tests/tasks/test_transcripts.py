"""The five forms of a transcript."""

import json
from typing import Any

import pytest

from tasks.transcripts import write

TRANSCRIPT: dict[str, Any] = {
    "task": "transcribe",
    "language": "en",
    "duration": 3723.2,
    "text": "Hello there. Good bye --> now.",
    "segments": [
        {"id": 0, "start": 0.0, "end": 1.2345, "text": " Hello there."},
        {"id": 1, "start": 2.0, "end": 2.0, "text": "  "},
        {"id": 2, "start": 3600.9996, "end": 3661.5, "text": " Good bye --> now."},
    ],
    "words": [{"word": "Hello", "start": 0.0, "end": 0.5}],
}
NONE: frozenset[str] = frozenset()


def test_json_is_the_text_and_what_is_counted() -> None:
    body, kind = write(TRANSCRIPT, "json", NONE)
    assert kind == "application/json"
    assert json.loads(body) == {"text": TRANSCRIPT["text"], "usage": {"type": "duration", "seconds": 3724}}
    assert json.loads(write({"text": "x"}, "json", NONE)[0]) == {"text": "x"}


def test_text_is_the_text() -> None:
    assert write(TRANSCRIPT, "text", NONE) == (b"Hello there. Good bye --> now.\n", "text/plain; charset=utf-8")


def test_srt_numbers_its_cues_without_a_gap() -> None:
    assert write(TRANSCRIPT, "srt", NONE)[0].decode() == (
        "1\n00:00:00,000 --> 00:00:01,234\nHello there.\n\n2\n01:00:01,000 --> 01:01:01,500\nGood bye -> now.\n"
    )


def test_vtt_has_a_head_and_points() -> None:
    assert write(TRANSCRIPT, "vtt", NONE)[0].decode() == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.234\nHello there.\n\n01:00:01.000 --> 01:01:01.500\nGood bye -> now.\n"
    )
    assert write({"text": ""}, "vtt", NONE)[0] == b"WEBVTT\n\n"


@pytest.mark.parametrize(
    ("granularities", "lists"),
    [
        (NONE, {"segments"}),
        (frozenset({"segment"}), {"segments"}),
        (frozenset({"word"}), {"words"}),
        (frozenset({"word", "segment"}), {"words", "segments"}),
    ],
)
def test_verbose_json_has_what_was_asked_for(granularities: frozenset[str], lists: set[str]) -> None:
    body = json.loads(write(TRANSCRIPT, "verbose_json", granularities)[0])
    assert body.keys() == {"task", "language", "duration", "text", "usage"} | lists
    assert body["language"] == "english"
