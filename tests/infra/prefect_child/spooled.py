"""Numbered runs as they lie in the spool, for tests of what reads it."""

from pathlib import Path
from uuid import UUID

from infra.records import Attempt, Payload, RunRecord, RunStatus, StepRecord
from infra.types import EngineId, Json, KeyName, ModelName, PoolId, RunId


def run_id(number: int) -> RunId:
    """The id of the run with this number."""
    return RunId(str(UUID(int=number, version=4)))


def make_run(number: int, status: RunStatus = "completed", request: Json = None, blob: str | None = None) -> RunRecord:
    """A run of one second and one step; with `request` or `blob` it has a payload."""
    attempt = Attempt(PoolId("cpu"), EngineId("cpu/m"), 1, "only one", [], 1000.0, 1001.0)
    step = StepRecord("generate", "generate", (), "completed", [attempt])
    run = RunRecord(run_id(number), "chat", ModelName("m"), KeyName("k"), 1000.0 + number, [step], boot="boot-1")
    run.status = status
    run.ended_at = 0.0 if status == "running" else run.started_at + 1.0
    if request is not None or blob is not None:
        run.payload = Payload(request, blob)
    return run


def write_segment(directory: Path, number: int, *lines: bytes) -> Path:
    """A closed segment whose name says that it is the `number`-th."""
    path = directory / f"{1_700_000_000_000_000_000 + number}.seg"
    path.write_bytes(b"".join(lines))
    return path
