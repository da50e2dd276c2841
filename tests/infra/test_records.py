"""A run's record as one line of JSON, whole or without its steps."""

import json

from infra.records import RECORD_VERSION, Attempt, RunRecord, StepRecord
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


def test_without_detail_only_the_steps_are_missing() -> None:
    whole, slim = json.loads(record().line()), json.loads(record().line(detail=False))
    assert slim == whole | {"steps": None}
