"""Transcription: a recording to an engine that hears, then its text in the form that was asked for.

A long one is cut where nobody speaks, and each part is heard by an engine of its own:

    split  →  part-1 … part-k  →  merge  →  write

Where the cuts are shows only when the recording has been listened to: the plan gives each part its share of the time,
the split makes of it the windows that the part gets, which may be none. A transcript that is streamed comes from one
engine, in one step.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from flows.distribute import Spread, merge_step, part_steps, shares
from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.sites import Site
from workers.types import Capability, Demand, ModelEntry, ModelFormat

LEAST_S: Final = 60
"""A recording of fewer seconds is not split, unless the model says otherwise: an item is a second."""
TRANSCRIBE: Final = TaskName("transcribe")
CUT: Final = TaskName("cut_recording")
STREAM: Final = TaskName("stream_transcript")
TRANSCRIBE_PART: Final = TaskName("transcribe_part")
MERGE: Final = TaskName("merge_transcripts")
WRITE: Final = TaskName("write_transcript")
PATHS: Final = {"transcribe": "/audio/transcriptions", "translate": "/audio/translations"}
_PLAIN: Final = ("json", "text")


def plan_transcription(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None = None) -> Plan:
    """`request`: `{task, file: {blob, name, media_type, bytes, seconds}, response_format, language, prompt,
    temperature, timestamp_granularities, stream}`, checked; `seconds` may be missing, as the recording's length then
    is."""
    stream = request.get("stream") is True
    hear = Step(
        StepId("transcribe"),
        STREAM if stream else TRANSCRIBE,
        _heard(request, entry),
        demand=Demand(entry.name, Capability.STT),
        items=count_seconds(request),
    )
    if stream:
        return Plan("transcription", entry.name, (hear,))
    return Plan("transcription", entry.name, (hear, _write(request, hear)))


def spread_transcription(request: dict[str, Json], entry: ModelEntry, sites: Sequence[Site]) -> Plan | None:
    """The same request in parts; None if it is better not split. No more parts than there can be windows."""
    seconds = count_seconds(request)
    most = math.ceil(seconds / entry.distribute.chunk_seconds)
    given = shares(seconds, entry, sites[:most], LEAST_S)
    if not given:
        return None
    heard = _heard(request, entry)
    numbered: list[dict[str, Json]] = [{**heard, "number": number} for number in range(1, len(given) + 1)]
    plain, *parts = part_steps(given, entry, Capability.STT, TRANSCRIBE_PART, numbered)
    listened: dict[str, Json] = {
        **plain.inputs,
        "file": request["file"],
        "language": request.get("language"),
        "window_s": entry.distribute.chunk_seconds,
    }
    cut = replace(plain, task=CUT, inputs=listened, demand=Demand(entry.name, Capability.STT))
    merge = merge_step(MERGE, {"task": request["task"]}, (cut, *parts))
    return Plan("transcription", entry.name, (cut, *parts, merge, _write(request, merge)))


def count_seconds(request: dict[str, Json]) -> int:
    """The length of a checked request's recording; 0 where it is not known."""
    file = request["file"]
    seconds = file.get("seconds") if isinstance(file, dict) else None
    return math.ceil(seconds) if isinstance(seconds, int | float) else 0


SPREAD_TRANSCRIPTION: Final = Spread(count_seconds, LEAST_S, spread_transcription)


def _heard(request: dict[str, Json], entry: ModelEntry) -> dict[str, Json]:
    """What an engine is asked."""
    form, granularities = _form(request), _granularities(request)
    return {
        "path": PATHS[str(request["task"])],
        "file": request["file"],
        "fields": _fields(request, entry, form, granularities),
    }


def _write(request: dict[str, Json], heard: Step) -> Step:
    inputs: dict[str, Json] = {"format": _form(request), "granularities": _granularities(request)}
    return Step(StepId("write"), WRITE, inputs, {"transcript": heard.id})


def _form(request: dict[str, Json]) -> str:
    return str(request.get("response_format") or "json")


def _granularities(request: dict[str, Json]) -> list[Json]:
    wanted = request.get("timestamp_granularities")
    return wanted if isinstance(wanted, list) else []


def _fields(request: dict[str, Json], entry: ModelEntry, form: str, granularities: list[Json]) -> list[Json]:
    """The form's fields besides model and file. A far service that knows no times is not asked for any in vain."""
    plain = form in _PLAIN
    asked = "json" if plain and entry.format is ModelFormat.SERVICE else "verbose_json"
    pairs: list[tuple[str, Json]] = [("response_format", asked)]
    pairs += [(name, request.get(name)) for name in ("language", "prompt", "temperature")]
    if not plain:
        pairs += [("timestamp_granularities[]", each) for each in dict.fromkeys([*map(str, granularities), "segment"])]
    pairs += [("stream", "true")] if request.get("stream") is True else []
    return [[name, str(value)] for name, value in pairs if value is not None]
