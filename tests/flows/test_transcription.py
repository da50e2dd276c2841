"""A recording is heard where the model is and written at the front; the plan survives JSON."""

from typing import Any

import pytest

from flows.plan import Plan
from flows.transcription import plan_transcription
from infra.types import Json
from tests.fakes import make_entry
from workers.types import Capability, ModelFormat

FILE: dict[str, Json] = {"blob": f"sha256:{'a' * 64}", "name": "a.wav", "media_type": "audio/wav", "bytes": 1}
BASE: dict[str, Json] = {"task": "transcribe", "model": "m", "file": FILE}
FAR: dict[str, Any] = {"path": None, "service_url": "http://far", "format": ModelFormat.SERVICE}


@pytest.mark.parametrize(
    ("request_", "entry", "fields"),
    [
        ({}, {}, [["response_format", "verbose_json"]]),
        ({}, FAR, [["response_format", "json"]]),
        (
            {"response_format": "srt", "language": "en", "temperature": 0.5, "prompt": None},
            FAR,
            [["response_format", "verbose_json"], ["language", "en"], ["temperature", "0.5"],
             ["timestamp_granularities[]", "segment"]],
        ),
        (
            {"response_format": "verbose_json", "timestamp_granularities": ["word"]},
            {},
            [["response_format", "verbose_json"], ["timestamp_granularities[]", "word"],
             ["timestamp_granularities[]", "segment"]],
        ),
        (
            {"response_format": "text", "timestamp_granularities": ["word"]},
            {},
            [["response_format", "verbose_json"]],
        ),
    ],
)  # fmt: skip
def test_what_the_engine_is_asked(request_: dict[str, Json], entry: dict[str, Any], fields: list[Json]) -> None:
    plan = plan_transcription(BASE | request_, make_entry(capabilities=(Capability.STT,), **entry))
    hear, write = plan.steps
    assert hear.inputs == {"path": "/audio/transcriptions", "file": FILE, "fields": fields}
    assert hear.demand is not None
    assert hear.demand.capability == Capability.STT
    assert (write.refs, write.demand) == ({"transcript": hear.id}, None)
    assert write.inputs["format"] == request_.get("response_format", "json")
    assert Plan.from_json(plan.to_json()) == plan


def test_a_translation_has_a_path_of_its_own() -> None:
    plan = plan_transcription(BASE | {"task": "translate"}, make_entry(capabilities=(Capability.STT,)))
    assert plan.steps[0].inputs["path"] == "/audio/translations"
