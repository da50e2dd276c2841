"""Records to write, and how to ask for what became of them."""

import time
from typing import Any
from uuid import uuid4

from infra.records import Attempt, Payload, RunRecord, StepRecord
from infra.types import EngineId, KeyName, ModelName, PoolId, RunId
from tests.prefect_server import PrefectServer


def attempt(begin: float, end: float, *, pool: str = "cpu", error: str | None = None) -> Attempt:
    """A try on the pool's engine of model `m`."""
    passed = [("service:far/m", "it is paused")]
    return Attempt(PoolId(pool), EngineId(f"{pool}/m"), 1, "the least busy engine", passed, begin, end, error)


def one_step(status: Any = "completed", *, at: float | None = None, boot: str = "boot-1", **fields: Any) -> RunRecord:
    """A run of one chat step that took 1.5 s, ten seconds ago unless `at` says otherwise."""
    start = round(time.time()) - 10.0 if at is None else at
    step = StepRecord("chat", "chat", (), "pending" if status == "running" else status, [attempt(start, start + 1.5)])
    run = RunRecord(RunId(str(uuid4())), "chat", ModelName("m"), KeyName("k"), start, [step], status=status, boot=boot)
    run.ended_at = 0.0 if status == "running" else start + 1.5
    run.payload = Payload(request={"model": "m", "messages": []})
    for name, value in fields.items():
        setattr(run, name, value)
    return run


def fan_out(*, at: float | None = None, boot: str = "boot-1") -> RunRecord:
    """A run whose step `join` reads what `part-0` and `part-1` made."""
    run = one_step(at=at, boot=boot)
    start = run.started_at
    run.steps = [
        StepRecord("part-0", "embed", (), "completed", [attempt(start, start + 1)]),
        StepRecord("part-1", "embed", (), "completed", [attempt(start, start + 0.5)]),
        StepRecord("join", "merge", ("part-0", "part-1"), "completed", [attempt(start + 1, start + 1.5)]),
    ]
    run.flow = "embeddings"
    return run


def states_of(server: PrefectServer, run: RunRecord) -> list[str]:
    """The types of a flow run's states, oldest first."""
    states = server.get(f"/flow_run_states/?flow_run_id={run.id}")
    return [state["type"] for state in sorted(states, key=lambda state: str(state["timestamp"]))]


def logs_of(server: PrefectServer, run: RunRecord) -> list[str]:
    """The run's log lines, oldest first."""
    logs = server.post("/logs/filter", {"logs": {"flow_run_id": {"any_": [run.id]}}, "sort": "TIMESTAMP_ASC"})
    return [line["message"] for line in logs]
