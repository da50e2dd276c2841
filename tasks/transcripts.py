"""The forms of a transcript: json, verbose_json, text, srt, vtt. Pure."""

import math
from collections.abc import Iterator
from typing import Final

import orjson

from infra.types import Json
from tasks.languages import LANGUAGES

FORMATS: Final = ("json", "text", "srt", "verbose_json", "vtt")
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"


def write(transcript: dict[str, Json], form: str, granularities: frozenset[str]) -> tuple[bytes, str]:
    """A transcript (verbose_json, or `{text}` alone) in that form, with its media type."""
    text = str(transcript["text"])
    match form:
        case "text":
            return f"{text}\n".encode(), _TEXT
        case "srt":
            return _subtitles(transcript, ",", numbered=True).encode(), _TEXT
        case "vtt":
            return ("WEBVTT\n\n" + _subtitles(transcript, ".", numbered=False)).encode(), _TEXT
        case "verbose_json":
            return orjson.dumps(_verbose(transcript, granularities)), _JSON
        case _:
            return orjson.dumps({"text": text, **_usage(transcript)}), _JSON


def _verbose(transcript: dict[str, Json], granularities: frozenset[str]) -> dict[str, Json]:
    """What OpenAI gives: segments unless only words are asked for, words where they are."""
    language = str(transcript.get("language") or "")
    body: dict[str, Json] = {
        "task": transcript.get("task", "transcribe"),
        "language": LANGUAGES.get(language, language),
        "duration": transcript.get("duration", 0.0),
        "text": transcript["text"],
    }
    if "word" in granularities:
        body["words"] = transcript.get("words", [])
    if "segment" in granularities or "word" not in granularities:
        body["segments"] = transcript.get("segments", [])
    return body | _usage(transcript)


def _usage(transcript: dict[str, Json]) -> dict[str, Json]:
    duration = transcript.get("duration")
    if not isinstance(duration, int | float):
        return {}
    return {"usage": {"type": "duration", "seconds": math.ceil(duration)}}


def _subtitles(transcript: dict[str, Json], point: str, *, numbered: bool) -> str:
    """One cue a segment."""
    cues = []
    for place, (start_s, end_s, text) in enumerate(_cues(transcript), 1):
        head = f"{place}\n" if numbered else ""
        cues.append(f"{head}{_clock(start_s, point)} --> {_clock(end_s, point)}\n{text}\n")
    return "\n".join(cues)


def _cues(transcript: dict[str, Json]) -> Iterator[tuple[float, float, str]]:
    segments = transcript.get("segments")
    for segment in segments if isinstance(segments, list) else []:
        if isinstance(segment, dict):
            start_s, end_s, text = segment.get("start"), segment.get("end"), str(segment.get("text", "")).strip()
            if isinstance(start_s, int | float) and isinstance(end_s, int | float) and text:
                yield start_s, end_s, text.replace("-->", "->")


def _clock(seconds: float, point: str) -> str:
    whole_ms = round(seconds * 1000)
    minutes, rest_ms = divmod(whole_ms, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest_ms // 1000:02}{point}{rest_ms % 1000:03}"
