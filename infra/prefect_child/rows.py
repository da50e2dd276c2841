"""What a run becomes in Prefect's tables: rows, as plain dictionaries. Pure, and the same for the same record.

Every id is derived from the run's, so that a line which is written twice is there once. Column names are those of
Prefect 3.9 (`prefect.server.database.orm_models`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from infra.prefect_child.batch import Recorded
from infra.prefect_child.markdown import describe_run
from infra.prefect_child.wording import log_lines
from infra.records import RunRecord, StepRecord
from infra.run_usage import usage_labels, usage_of
from infra.types import Json

Row = dict[str, Any]

FRONT_PID = "front:"
"""An `infrastructure_pid` that begins so names the life of the front (`Boot`) that executes the run."""
CRASH_MESSAGE = "the front ended while it ran"
_STATES = {
    "pending": ("PENDING", "Pending"),
    "running": ("RUNNING", "Running"),
    "completed": ("COMPLETED", "Completed"),
    "failed": ("FAILED", "Failed"),
    "cancelled": ("CANCELLED", "Cancelled"),
    "crashed": ("CRASHED", "Crashed"),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run belongs among Prefect's things; ids are Prefect's."""

    flow_id: UUID
    deployment_id: UUID | None = None
    queue_id: UUID | None = None
    queue_name: str | None = None


@dataclass(slots=True)
class Rows:
    """Rows by table, in the order in which they must be inserted. `flow_runs` have no state yet: see `state_id`."""

    flow_runs: list[Row] = field(default_factory=list)
    states: list[Row] = field(default_factory=list)
    task_runs: list[Row] = field(default_factory=list)
    task_states: list[Row] = field(default_factory=list)
    logs: list[Row] = field(default_factory=list)
    artifacts: list[Row] = field(default_factory=list)


def state_id(run: UUID, status: str) -> UUID:
    """The id of a run's state; also the id of the event that tells of it, as in Prefect."""
    return uuid5(run, f"state:{status}")


def pool_of(record: RunRecord) -> str | None:
    """The pool where the run's first step went, at its last try."""
    attempts = record.steps[0].attempts if record.steps else []
    return attempts[-1].pool if attempts else None


def add_run(rows: Rows, recorded: Recorded, place: Place, now: datetime) -> None:
    """Add all rows of one run.

    Raises:
        ValueError: an id is no UUID.
        OverflowError: a time lies outside the calendar.
    """
    record = recorded.record
    run = UUID(record.id)
    start, end = _span(record)
    over = record.status != "running"
    rows.flow_runs.append(_flow_run(recorded, place, (start, end), now))
    rows.states.append(flow_state(run, "running", start, None, now))
    rows.logs.extend(_logs(run, record, now))
    if not over:
        return
    rows.states.append(flow_state(run, record.status, end, record.error, now))
    rows.artifacts.append(_artifact(run, record, now))
    if len(record.steps) > 1:
        for task_run, state in _tasks(run, record, now):
            rows.task_runs.append(task_run)
            rows.task_states.append(state)


def flow_state(run: UUID, status: str, when: datetime, message: str | None, now: datetime) -> Row:
    """One state of a flow run."""
    kind, name = _STATES[status]
    return {
        "id": state_id(run, status),
        "created": now,
        "updated": now,
        "flow_run_id": run,
        "type": kind,
        "name": name,
        "timestamp": when,
        "message": clean(message),
        "state_details": {"flow_run_id": run},
        "data": None,
    }


def tags_of(record: RunRecord) -> list[str]:
    """The tags that runs are found by; `key:` is also who owns it."""
    engines = {attempt.engine: None for step in record.steps for attempt in step.attempts if attempt.engine}
    tags = [f"model:{record.model}", f"key:{record.key}", *(f"engine:{engine}" for engine in engines)]
    return [clean(tag) for tag in (*tags, "lane:interactive")]


def clean(text: str | None) -> Any:
    """PostgreSQL's text and JSON hold no NUL."""
    return text if text is None else text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _flow_run(recorded: Recorded, place: Place, span: tuple[datetime, datetime], now: datetime) -> Row:
    record = recorded.record
    kind, name = _STATES[record.status]
    over = record.status != "running"
    start, end = span
    return {
        "id": UUID(record.id),
        "created": now,
        "updated": now,
        "name": f"{record.flow}-{record.id[:8]}",
        "flow_id": place.flow_id,
        "deployment_id": place.deployment_id,
        "work_queue_id": place.queue_id,
        "work_queue_name": place.queue_name,
        "parameters": {"request": clean_json(recorded.parameter)},
        "context": {},
        "tags": tags_of(record),
        "labels": usage_labels(usage_of(record)),
        "empirical_policy": {},
        "job_variables": {},
        "idempotency_key": record.id,
        "infrastructure_pid": f"{FRONT_PID}{record.boot}",
        "auto_scheduled": False,
        "run_count": 1,
        "state_type": kind,
        "state_name": name,
        "state_timestamp": end if over else start,
        "expected_start_time": start,
        "start_time": start,
        "end_time": end if over else None,
        "total_run_time": end - start if over else timedelta(0),
    }


def _tasks(run: UUID, record: RunRecord, now: datetime) -> Iterator[tuple[Row, Row]]:
    for step in record.steps:
        task = _task_id(run, step.id)
        kind, name = _STATES[step.status]
        start = _moment(step.attempts[0].started_at) if step.attempts else None
        end = _task_end(record, step)
        error = step.attempts[-1].error if step.attempts and step.status != "completed" else None
        state = {
            "id": uuid5(task, f"state:{step.status}"),
            "created": now,
            "updated": now,
            "task_run_id": task,
            "type": kind,
            "name": name,
            "timestamp": end,
            "message": clean(error),
            "state_details": {"flow_run_id": run, "task_run_id": task},
            "data": None,
        }
        yield _task_run(run, step, state, (start, end), now), state


def _task_run(run: UUID, step: StepRecord, state: Row, span: tuple[datetime | None, datetime], now: datetime) -> Row:
    start, end = span
    parents = [{"input_type": "task_run", "id": _task_id(run, parent)} for parent in dict.fromkeys(step.parents)]
    return {
        "id": state["task_run_id"],
        "created": now,
        "updated": now,
        "name": clean(step.id),
        "flow_run_id": run,
        "task_key": f"coderai.{step.task}",  # a name space of our own: Prefect's engine uses `<name>-<hash>`
        "dynamic_key": clean(step.id),
        "run_count": len(step.attempts),
        "flow_run_run_count": 1,
        "task_inputs": {"parents": parents},
        "tags": [clean(f"engine:{attempt.engine}") for attempt in step.attempts if attempt.engine],
        "labels": {},
        "empirical_policy": {},
        "state_id": state["id"],
        "state_type": state["type"],
        "state_name": state["name"],
        "state_timestamp": end,
        "expected_start_time": start or end,
        "start_time": start,
        "end_time": end,
        "total_run_time": end - start if start else timedelta(0),
    }


def _logs(run: UUID, record: RunRecord, now: datetime) -> Iterator[Row]:
    for when, level, message in log_lines(record):
        yield {
            "id": uuid5(run, f"log:{when}:{message}"),
            "created": now,
            "updated": now,
            "name": "coderai",
            "level": level,
            "flow_run_id": run,
            "task_run_id": None,
            "message": clean(message),
            "timestamp": _moment(when),
        }


def _artifact(run: UUID, record: RunRecord, now: datetime) -> Row:
    return {
        "id": uuid5(run, "artifact"),
        "created": now,
        "updated": now,
        "key": None,  # with a key it would be one more version of a single artifact on the artifacts' page
        "type": "markdown",
        "data": clean(describe_run(record)),
        "description": "Where each step went, and why",
        "flow_run_id": run,
        "task_run_id": None,
        "metadata_": None,
    }


def _span(record: RunRecord) -> tuple[datetime, datetime]:
    """Start and end; the end is later by an instant at least, since two states of one moment cannot be stored."""
    start = _moment(record.started_at)
    return start, max(_moment(record.ended_at or record.started_at), start + _INSTANT)


def _task_end(record: RunRecord, step: StepRecord) -> datetime:
    ended = step.attempts[-1].ended_at if step.attempts else 0.0
    end = _moment(ended or record.ended_at)
    return max(end, _moment(step.attempts[0].started_at)) if step.attempts else end


def _task_id(run: UUID, step: str) -> UUID:
    return uuid5(run, f"task:{step}")


def _moment(seconds: float) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def clean_json(value: Json) -> Json:
    """The value with `clean` text; itself if there is nothing to clean."""
    match value:
        case str():
            return clean(value) if "\0" in value else value
        case dict():
            return {clean(key): clean_json(item) for key, item in value.items()}
        case list():
            return [clean_json(item) for item in value]
        case _:
            return value
