"""Transcription: a recording to an engine that hears, then its text in the form that was asked for.

Two steps, so that a recording in several windows is more of the first and a merge before the last.
"""

from typing import Final

from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.types import Capability, Demand, ModelEntry, ModelFormat

TRANSCRIBE: Final = TaskName("transcribe")
WRITE: Final = TaskName("write_transcript")
PATHS: Final = {"transcribe": "/audio/transcriptions", "translate": "/audio/translations"}
_PLAIN: Final = ("json", "text")


def plan_transcription(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None = None) -> Plan:
    """`request`: `{task, file: {blob, name, media_type, bytes}, response_format, language, prompt, temperature,
    timestamp_granularities}`, checked."""
    form = request.get("response_format") or "json"
    wanted = request.get("timestamp_granularities")
    granularities: list[Json] = wanted if isinstance(wanted, list) else []
    hear = Step(
        StepId("transcribe"),
        TRANSCRIBE,
        {
            "path": PATHS[str(request["task"])],
            "file": request["file"],
            "fields": _fields(request, entry, str(form), granularities),
        },
        demand=Demand(entry.name, Capability.STT),
    )
    write = Step(StepId("write"), WRITE, {"format": form, "granularities": granularities}, {"transcript": hear.id})
    return Plan("transcription", entry.name, (hear, write))


def _fields(request: dict[str, Json], entry: ModelEntry, form: str, granularities: list[Json]) -> list[Json]:
    """The form's fields besides model and file. A far service that knows no times is not asked for any in vain."""
    plain = form in _PLAIN
    asked = "json" if plain and entry.format is ModelFormat.SERVICE else "verbose_json"
    pairs: list[tuple[str, Json]] = [("response_format", asked)]
    pairs += [(name, request.get(name)) for name in ("language", "prompt", "temperature")]
    if not plain:
        pairs += [("timestamp_granularities[]", each) for each in dict.fromkeys([*map(str, granularities), "segment"])]
    return [[name, str(value)] for name, value in pairs if value is not None]
