"""Tests of the rows that a record becomes; what a database makes of them is tested with one."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from infra.prefect_child.batch import Recorded
from infra.prefect_child.rows import Place, Rows, add_run, clean_json, pool_of, state_id, tags_of
from infra.records import RunRecord
from infra.run_usage import RunUsage, labelled_usage
from infra.types import Json
from tests.infra.prefect_child.records import attempt, fan_out, one_step

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PLACE = Place(uuid4(), uuid4(), uuid4(), "default")


def rows_of(record: RunRecord) -> Rows:
    rows = Rows()
    add_run(rows, Recorded(record, {"model": "m"}), PLACE, NOW)
    return rows


def test_the_same_record_makes_the_same_rows() -> None:
    run = fan_out(at=1000.0)
    assert rows_of(run) == rows_of(run)


@pytest.mark.parametrize(
    ("status", "states"),
    [
        ("running", ["RUNNING"]),
        ("completed", ["RUNNING", "COMPLETED"]),
        ("failed", ["RUNNING", "FAILED"]),
        ("cancelled", ["RUNNING", "CANCELLED"]),
    ],
)
def test_each_status_has_its_states(status: str, states: list[str]) -> None:
    rows = rows_of(one_step(status, at=1000.0))
    assert [row["type"] for row in rows.states] == states
    assert rows.flow_runs[0]["state_type"] == states[-1]
    assert (rows.flow_runs[0]["end_time"] is None) == (status == "running")
    assert len(rows.artifacts) == (0 if status == "running" else 1)


def test_a_run_belongs_where_it_is_placed() -> None:
    row = rows_of(one_step(at=1000.0)).flow_runs[0]
    assert (row["flow_id"], row["deployment_id"]) == (PLACE.flow_id, PLACE.deployment_id)
    assert (row["work_queue_id"], row["work_queue_name"]) == (PLACE.queue_id, "default")


def test_two_states_never_share_a_moment() -> None:
    run = one_step(at=1000.0, ended_at=1000.0)
    first, last = rows_of(run).states
    assert last["timestamp"] - first["timestamp"] == timedelta(microseconds=1)


def test_an_end_before_the_start_is_taken_for_no_time_at_all() -> None:
    row = rows_of(one_step(at=1000.0, ended_at=900.0)).flow_runs[0]
    assert row["end_time"] > row["start_time"]
    assert row["total_run_time"] == timedelta(microseconds=1)


def test_task_runs_name_the_steps_whose_results_they_read() -> None:
    rows = rows_of(fan_out(at=1000.0))
    ids = {row["name"]: row["id"] for row in rows.task_runs}
    parents = {row["name"]: [one["id"] for one in row["task_inputs"]["parents"]] for row in rows.task_runs}
    assert parents == {"part-0": [], "part-1": [], "join": [ids["part-0"], ids["part-1"]]}
    assert all(row["task_key"].startswith("coderai.") for row in rows.task_runs)
    assert [row["task_run_id"] for row in rows.task_states] == list(ids.values())


def test_a_step_that_was_never_placed_has_no_start() -> None:
    run = fan_out(at=1000.0)
    run.steps[2].attempts, run.steps[2].status = [], "cancelled"
    row = rows_of(run).task_runs[2]
    assert (row["start_time"], row["state_type"], row["run_count"]) == (None, "CANCELLED", 0)


def test_the_lines_of_a_running_record_are_those_of_its_end() -> None:
    begun = rows_of(one_step("running", at=1000.0, id="3f0e6a0e-0000-4000-8000-000000000001"))
    ended = rows_of(one_step(at=1000.0, id="3f0e6a0e-0000-4000-8000-000000000001"))
    assert {row["id"] for row in begun.logs} < {row["id"] for row in ended.logs}
    assert begun.states[0]["id"] == ended.states[0]["id"]


def test_a_state_s_id_is_its_run_s_and_its_own() -> None:
    run = UUID(int=1)
    assert len({state_id(run, status) for status in ("running", "failed", "completed")}) == 3
    assert state_id(run, "failed") != state_id(UUID(int=2), "failed")


def test_labels_say_what_was_used() -> None:
    assert rows_of(one_step(at=1000.0)).flow_runs[0]["labels"] == {}
    used = rows_of(one_step(at=1000.0, units=3.0)).flow_runs[0]["labels"]
    assert labelled_usage(used) == RunUsage(units=3.0)


def test_tags_name_every_engine_once() -> None:
    run = one_step(at=1000.0)
    run.steps[0].attempts = [attempt(1000, 1001), attempt(1001, 1002, pool="gpu"), attempt(1002, 1003)]
    assert tags_of(run) == ["model:m", "key:k", "engine:cpu/m", "engine:gpu/m", "lane:interactive"]


def test_the_pool_is_that_of_the_first_step_s_last_try() -> None:
    run = one_step(at=1000.0)
    run.steps[0].attempts.append(attempt(1001, 1002, pool="gpu"))
    assert pool_of(run) == "gpu"
    run.steps = []
    assert pool_of(run) is None


@pytest.mark.parametrize(
    ("value", "cleaned"),
    [("a\0b", "a�b"), ({"\0": ["\0", 1, None]}, {"�": ["�", 1, None]}), (True, True), ([], [])],
)
def test_no_nul_is_left_in_json(value: Json, cleaned: Json) -> None:
    assert clean_json(value) == cleaned


@pytest.mark.parametrize("wrong", [{"id": "none"}, {"at": 1e18}, {"ended_at": float("nan")}])
def test_an_id_or_a_time_that_is_none_is_an_error(wrong: dict[str, object]) -> None:
    at = wrong.pop("at", 1000.0)
    with pytest.raises((ValueError, OverflowError)):
        rows_of(one_step(at=at, **wrong))  # type: ignore[arg-type]
