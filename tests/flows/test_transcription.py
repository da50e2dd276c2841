"""A recording is heard where the model is and written at the front; the plan survives JSON."""

from typing import Any

import pytest

from flows.distribute import Cut, in_parts
from flows.plan import Plan
from flows.transcription import SPREAD_TRANSCRIPTION, count_seconds, plan_transcription
from infra.types import EngineId, Json, PoolId
from tests.fakes import make_entry
from workers.sites import Site
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


@pytest.mark.parametrize(("entry", "asked"), [({}, "verbose_json"), (FAR, "json")])
def test_a_stream_is_one_step(entry: dict[str, Any], asked: str) -> None:
    plan = plan_transcription(BASE | {"stream": True}, make_entry(capabilities=(Capability.STT,), **entry))
    (step,) = plan.steps
    assert (step.task, step.inputs["file"]) == ("stream_transcript", FILE)
    assert step.inputs["fields"] == [["response_format", asked], ["stream", "true"]]
    assert Plan.from_json(plan.to_json()) == plan


def test_a_translation_has_a_path_of_its_own() -> None:
    plan = plan_transcription(BASE | {"task": "translate"}, make_entry(capabilities=(Capability.STT,)))
    assert plan.steps[0].inputs["path"] == "/audio/translations"


def spread(seconds: Json, *pools: str, **distribute: Any) -> Plan | None:
    """The plan of a recording of so many seconds for these pools."""
    sites = tuple(Site(PoolId(pool), EngineId(f"{pool}/m"), True) for pool in pools)
    entry = make_entry(capabilities=(Capability.STT,), distribute=distribute)
    request = BASE | {"file": {**FILE, "seconds": seconds}, "prompt": "CoderAI", "response_format": "srt"}
    return in_parts(SPREAD_TRANSCRIPTION, request, entry, Cut(lambda _entry: sites))


def test_a_long_recording_is_cut_and_merged() -> None:
    plan = spread(100.2, "a", "b", chunk_seconds=20.0)
    assert plan is not None
    split, one, two, merge, write = plan.steps
    file: Json = {**FILE, "seconds": 100.2}
    assert (split.id, split.task) == ("split", "cut_recording")
    assert split.inputs == {"sizes": [51, 50], "file": file, "language": None, "window_s": 20.0}
    assert split.demand is not None
    assert (split.demand.capability, split.demand.home) == (Capability.STT, None)
    assert one.inputs == {
        "number": 1,
        "path": "/audio/transcriptions",
        "file": file,
        "fields": [
            ["response_format", "verbose_json"],
            ["prompt", "CoderAI"],
            ["timestamp_granularities[]", "segment"],
        ],
    }
    assert (one.refs, one.items, two.inputs["number"], two.items) == ({"split": "split"}, 51, 2, 50)
    assert two.demand is not None
    assert two.demand.home == "b"
    assert (merge.id, merge.inputs) == ("merge", {"task": "transcribe"})
    assert set(merge.refs) == {"split", "part-1", "part-2"}
    assert write.refs == {"transcript": "merge"}
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("seconds", "pools", "distribute"),
    [
        (59.0, "ab", {}),
        (None, "ab", {}),
        (600.0, "a", {}),
        (600.0, "ab", {"enabled": False}),
        (600.0, "ab", {"min_items": 601}),
        (100.0, "ab", {"chunk_seconds": 100.0}),
    ],
    ids=["short", "of unknown length", "one engine", "off", "short for the model", "one window"],
)
def test_what_is_not_cut(seconds: Json, pools: str, distribute: dict[str, Any]) -> None:
    assert spread(seconds, *pools, **distribute) is None


def test_no_more_parts_than_windows() -> None:
    plan = spread(61.0, *"abcde")
    assert plan is not None
    assert [step.items for step in plan.steps if step.items] == [21, 20, 20]


def test_the_whole_has_its_length_too() -> None:
    request = BASE | {"file": {**FILE, "seconds": 10.4}}
    plan = plan_transcription(request, make_entry(capabilities=(Capability.STT,)))
    assert plan.steps[0].items == count_seconds(request) == 11
