"""A run as its owner sees it: every state, from memory and from Prefect."""

from datetime import UTC, datetime
from typing import Any, get_args
from uuid import UUID

import pytest

from api.run_views import (
    OVER,
    STATES,
    RunStatus,
    UsageView,
    log_lines,
    of_flow_run,
    of_record,
    steps_of_record,
    steps_of_tasks,
)
from infra.prefect_shapes import TERMINAL, FlowRun, LogLine, StateType, TaskRun
from infra.records import Attempt, RunRecord, StepRecord
from infra.run_usage import RunUsage, usage_labels
from infra.types import EngineId, KeyName, ModelName, PoolId, RunId

RUN = RunId("12345678-1234-4234-8234-123456789abc")
AT = datetime(2026, 1, 2, 3, 4, 5, 250_000, UTC)


def flow_run(state: str, **fields: Any) -> FlowRun:
    made = {
        "id": RUN,
        "name": "n",
        "flow_id": UUID(int=1),
        "created": AT,
        "start_time": AT,
        "end_time": AT,
        "total_run_time": 2.5,
        "run_count": 1,
        "tags": ["model:m", "key:ann", "lane:job"],
        "state": {"type": state, "name": state, "message": "why", "timestamp": AT},
    }
    return FlowRun.model_validate(made | fields)


def record(**fields: Any) -> RunRecord:
    made = RunRecord(RUN, "chat", ModelName("m"), KeyName("ann"), 100.0, [], ended_at=102.5)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_every_state_of_prefect_has_one_word() -> None:
    states = [state for kinds in STATES.values() for state in kinds]
    assert sorted(states) == sorted(get_args(StateType))
    assert set(STATES) == set(get_args(RunStatus))
    assert {state for word in OVER for state in STATES[word]} == TERMINAL


@pytest.mark.parametrize(
    ("state", "status", "error", "over"),
    [
        ("SCHEDULED", "queued", None, False),
        ("PENDING", "queued", None, False),
        ("RUNNING", "running", None, False),
        ("CANCELLING", "cancelling", None, False),
        ("COMPLETED", "completed", None, True),
        ("FAILED", "failed", "why", True),
        ("CANCELLED", "cancelled", "why", True),
        ("CRASHED", "crashed", "why", True),
    ],
)
def test_states(state: str, status: str, error: str | None, over: bool) -> None:
    view = of_flow_run(flow_run(state), "chat")
    assert (view.status, view.error) == (status, error)
    assert (view.ended_at is not None) is over  # of a run that is run again the old end is none


def test_a_flow_run() -> None:
    view = of_flow_run(flow_run("COMPLETED", run_count=2), "chat")
    assert (view.id, view.flow, view.model, view.key, view.lane) == (RUN, "chat", "m", "ann", "job")
    assert (view.created_at, view.started_at, view.ended_at) == (AT.timestamp(),) * 3
    assert (view.duration_s, view.run_count) == (2.5, 2)
    assert view.flow_url == f"/flows/runs/flow-run/{RUN}"


def test_a_flow_run_that_waits_or_was_made_by_hand() -> None:
    view = of_flow_run(flow_run("SCHEDULED", start_time=None, end_time=None, tags=[], run_count=0), "chat")
    assert (view.model, view.key, view.lane) == (None, None, "interactive")
    assert (view.started_at, view.duration_s, view.created_at) == (None, None, AT.timestamp())
    stateless = flow_run("SCHEDULED").model_copy(update={"state": None})
    assert of_flow_run(stateless, "chat").status == "queued"


def test_a_run_recorded_later_was_made_when_it_began() -> None:
    view = of_flow_run(flow_run("COMPLETED", created="2026-01-02T03:05:00Z"), "chat")
    assert view.created_at == view.started_at


def test_a_record() -> None:
    view = of_record(record(prompt_tokens=7, cached_tokens=2))
    assert (view.status, view.duration_s, view.ended_at, view.lane) == ("completed", 2.5, 102.5, "interactive")
    assert view.usage is not None
    assert (view.usage.prompt_tokens, view.usage.completion_tokens, view.usage.total_tokens) == (7, 0, 7)
    failed = of_record(record(status="failed", error="no room"))
    assert (failed.status, failed.error, failed.usage) == ("failed", "no room", None)


def test_what_was_used_besides_tokens() -> None:
    view = of_record(record(units=3.0))
    assert view.usage is not None
    assert (view.usage.total_tokens, view.usage.units) == (0, 3.0)


@pytest.mark.parametrize("lane", ["job", "interactive"])
def test_a_flow_run_knows_what_it_used(lane: str) -> None:
    """Also where the front that executed it is gone."""
    labels = usage_labels(RunUsage(7, 3, 2, 1.5))
    view = of_flow_run(flow_run("COMPLETED", tags=[f"lane:{lane}"], labels={"prefect.flow.id": "1", **labels}), "chat")
    assert view.usage == UsageView(prompt_tokens=7, completion_tokens=3, cached_tokens=2, total_tokens=10, units=1.5)
    for unknown in (None, {}, {"team": "a"}):
        assert of_flow_run(flow_run("COMPLETED", labels=unknown), "chat").usage is None


def test_a_record_that_is_still_being_written() -> None:
    view = of_record(record(ended_at=0.0))
    assert (view.status, view.ended_at, view.duration_s) == ("running", None, None)


def test_steps_of_a_record() -> None:
    first = Attempt(PoolId("cpu"), EngineId("cpu/m"), 1, "least busy", [("gpu", "paused")], 1.0, 2.0, "it died")
    second = Attempt(None, None, 0, "by the front", [], 2.0, 2.5)
    steps = [
        StepRecord("a", "generate", (), "completed", [first, second]),
        StepRecord("b", "rank", ("a",), "pending", [Attempt(None, None, 0, "", [], 3.0)]),
        StepRecord("c", "rank", ("a", "b")),
    ]
    a, b, c = steps_of_record(record(steps=steps))
    assert (a.step, a.status, a.started_at, a.ended_at, a.error) == ("a", "completed", 1.0, 2.5, None)
    assert a.attempts[0].model_dump() == {
        "pool": "cpu",
        "engine": "cpu/m",
        "reason": "least busy",
        "passed_over": (("gpu", "paused"),),
        "started_at": 1.0,
        "ended_at": 2.0,
        "error": "it died",
    }
    assert (b.status, b.parents, b.ended_at) == ("running", ("a",), None)
    assert (c.status, c.parents, c.started_at, c.attempts) == ("pending", ("a", "b"), None, ())


def test_steps_of_task_runs() -> None:
    def task(number: int, name: str, state: str, *parents: int) -> TaskRun:
        inputs = [{"input_type": "task_run", "id": UUID(int=parent)} for parent in parents]
        return TaskRun.model_validate(
            {
                "id": UUID(int=number),
                "name": name,
                "task_key": name,
                "run_count": 2,
                "start_time": AT,
                "state": {"type": state, "name": state, "message": "why", "timestamp": AT},
                "task_inputs": {"parents": [*inputs, {"input_type": "constant"}]},
            }
        )

    a, b = steps_of_tasks([task(1, "a", "COMPLETED"), task(2, "b", "FAILED", 1, 9)])
    assert (a.step, a.status, a.error, a.parents) == ("a", "completed", None, ())
    assert (b.step, b.status, b.error, b.parents) == ("b", "failed", "why", ("a",))
    assert (b.started_at, b.ended_at, b.run_count) == (AT.timestamp(), None, 2)


def test_log_lines() -> None:
    (line,) = log_lines([LogLine(level=20, message="placed", timestamp=AT)])
    assert (line.at, line.level, line.message) == (AT.timestamp(), 20, "placed")
