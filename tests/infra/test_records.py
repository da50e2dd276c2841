"""A run's record as one line of JSON, whole or without its steps, and read back."""

import json

import orjson
import pytest

from infra.errors import InvalidRequest
from infra.records import RECORD_VERSION, Attempt, Boot, Payload, RunRecord, StepRecord, read_line
from infra.types import EngineId, KeyName, ModelName, PoolId, RunId


def record() -> RunRecord:
    attempt = Attempt(PoolId("cpu"), EngineId("cpu/m"), 2, "free", [("vulkan-0", "too small")], 10.0, 12.5, "broke off")
    step = StepRecord("generate", "generate", ("before",), "failed", [attempt])
    return RunRecord(RunId("r"), "chat", ModelName("m\n"), KeyName("ann"), 9.0, [step], 13.0, "failed", "broke off")


def test_a_record_is_one_line_with_all_there_is() -> None:
    line = record().line()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    read = json.loads(line)
    assert (read["id"], read["model"], read["version"], read["prompt_tokens"]) == ("r", "m\n", RECORD_VERSION, None)
    (step,) = read["steps"]
    assert (step["status"], step["parents"]) == ("failed", ["before"])
    assert step["attempts"][0]["passed_over"] == [["vulkan-0", "too small"]]


def test_without_detail_only_steps_and_payload_are_missing() -> None:
    full = record()
    full.payload = Payload({"messages": []})
    whole, slim = json.loads(full.line()), json.loads(full.line(detail=False))
    assert slim == {name: value for name, value in whole.items() if name != "payload"} | {"steps": []}
    assert read_line(full.line(detail=False)) == RunRecord(
        RunId("r"), "chat", ModelName("m\n"), KeyName("ann"), 9.0, [], 13.0, "failed", "broke off"
    )


def test_a_line_is_read_back_as_it_was_written() -> None:
    written = record()
    written.payload = Payload(orjson.Fragment(b'{"a": [1, null]}'), steps={"score": {"scores": [0.5]}})
    read = read_line(written.line())
    assert isinstance(read, RunRecord)
    assert read.payload == Payload({"a": [1, None]}, None, {"score": {"scores": [0.5]}})
    assert read.steps == written.steps
    assert read_line(Boot("b", 3.0).line()) == Boot("b", 3.0)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b'{"kind": "run"}',
        b'{"kind": "boot", "boot": "b"}',
        record().line()[:-9],
        Boot("b", 3.0, version=RECORD_VERSION + 1).line(),
    ],
)
def test_what_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidRequest, match="record"):
        read_line(line)
