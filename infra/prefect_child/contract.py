"""Whether Prefect's API reads what we write into its tables: one record, written and read back at each start.

The tables are no public interface. A version that keeps them otherwise must be noticed before a run is lost in them:
then nothing is written, the spool keeps everything, and the reason is shown.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

import httpx
import prefect
import sqlalchemy as sa
from prefect.server.database import PrefectDBInterface
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from infra.errors import CoderAIError
from infra.prefect_child.batch import NotReady, Recorded, SchemaUnknown
from infra.prefect_child.lookup import Places
from infra.prefect_child.trouble import in_our_words
from infra.prefect_child.write import Recorder
from infra.records import Attempt, RunRecord, StepRecord
from infra.run_usage import labelled_usage, usage_of
from infra.types import EngineId, KeyName, ModelName, PoolId, RunId

VERSIONS = "3.9."
FLOW = "coderai-contract"
_RUN = UUID("c0de0a10-0000-5000-8000-000000000001")
_OTHER_SHAPES = (LookupError, TypeError, ValueError)
"""What reading an answer of another shape ends with."""
_PARAMETER = {"asked": "whether this is read back"}


async def broken(db: PrefectDBInterface, api: httpx.AsyncClient, version: str = prefect.__version__) -> str | None:
    """What is not as it must be, as a sentence; None if all is well. Leaves nothing behind.

    `api` asks Prefect's REST API, its base URL being the API's.

    Raises:
        NotReady: the database takes nothing now; nothing is known of its tables.
    """
    if not version.startswith(VERSIONS):
        return f"Prefect {version} is installed; this program records into {VERSIONS}x only"
    record = _record(time.time())
    try:
        await _clean(db)
        await Recorder(db, Places(db, patience_s=None)).record([Recorded(record, dict(_PARAMETER))])
        differences = [
            f"{what} reads {found!r} instead of {written!r}"
            for what, written, found in await _read_back(api, record)
            if found != written
        ]
        await _clean(db)
    except (CoderAIError, SQLAlchemyError, OSError, httpx.HTTPError, AttributeError, *_OTHER_SHAPES) as error:
        told = in_our_words(error) if isinstance(error, DBAPIError | OSError) else error
        if _may_pass(told, error):
            raise told from error
        return f"the record written to try Prefect {version} failed: {type(told).__name__}: {told}"[:500]
    return f"Prefect {version} does not read what is written: {'; '.join(differences)}"[:500] if differences else None


def _may_pass(told: Exception, error: Exception) -> bool:
    """Whether it is the database that is locked, full or away. What is no error of its driver says nothing of it."""
    driver = error.__cause__ if isinstance(error, NotReady) else error
    return (
        isinstance(told, NotReady) and not isinstance(told, SchemaUnknown) and isinstance(driver, DBAPIError | OSError)
    )


def _record(now: float) -> RunRecord:
    start = round(now) - 10.25

    def step(name: str, parents: tuple[str, ...], begin: float, end: float) -> StepRecord:
        attempt = Attempt(PoolId("cpu"), EngineId("cpu/contract"), 1, "the only one", [], start + begin, start + end)
        return StepRecord(name, "contract", parents, "completed", [attempt])

    steps = [step("a", (), 0, 1), step("b", (), 0, 2), step("c", ("a", "b"), 2, 2.5)]
    record = RunRecord(
        RunId(str(_RUN)), FLOW, ModelName("contract"), KeyName("contract"), start, steps, start + 2.5, boot="contract"
    )
    record.prompt_tokens, record.units = 3, 2.5
    return record


async def _read_back(api: httpx.AsyncClient, record: RunRecord) -> list[tuple[str, Any, Any]]:
    """What was written and what is read, by name."""
    mine = {"id": {"any_": [record.id]}}
    run = (await api.get(f"/flow_runs/{record.id}")).raise_for_status().json()
    states = (await api.get("/flow_run_states/", params={"flow_run_id": record.id})).raise_for_status().json()
    graph = (await api.get(f"/flow_runs/{record.id}/graph-v2")).raise_for_status().json()
    count = (await api.post("/flow_runs/count", json={"flow_runs": mine})).raise_for_status().json()
    tasks = (await api.post("/task_runs/filter", json={"flow_runs": mine})).raise_for_status().json()
    of_run = {"flow_run_id": {"any_": [record.id]}}
    logs = (await api.post("/logs/filter", json={"logs": of_run})).raise_for_status().json()
    artifacts = (await api.post("/artifacts/filter", json={"artifacts": of_run})).raise_for_status().json()
    return [
        ("the number of runs", 1, count),
        ("the number of task runs", 3, len(tasks)),
        ("the number of log lines", 4, len(logs)),
        ("the number of artifacts", 1, len(artifacts)),
        *_run_facts(record, run, states),
        ("the graph", _edges(), sorted(_edges_read(graph))),
    ]


def _run_facts(record: RunRecord, run: dict[str, Any], states: list[dict[str, Any]]) -> Iterator[tuple[str, Any, Any]]:
    yield "the state", "COMPLETED", run["state"]["type"]
    yield "the start", record.started_at, _seconds(run["start_time"])
    yield "the end", record.ended_at, _seconds(run["end_time"])
    yield "the duration", record.ended_at - record.started_at, run["total_run_time"]
    yield "the parameters", {"request": _PARAMETER}, run["parameters"]
    yield "what it used", usage_of(record), labelled_usage(run["labels"])
    yield "the key's tag", True, f"key:{record.key}" in run["tags"]
    yield "the list of states", ["RUNNING", "COMPLETED"], [state["type"] for state in states]


def _edges() -> list[tuple[str, str]]:
    a, b, c = (str(uuid5(_RUN, f"task:{step}")) for step in "abc")
    return sorted([(a, c), (b, c)])


def _edges_read(graph: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for _, node in graph["nodes"]:
        for parent in node["parents"]:
            yield parent["id"], node["id"]


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


async def _clean(db: PrefectDBInterface) -> None:
    """Take the record out again, also one that an earlier start left. Directly: an event would tell of it."""
    async with db.session_context(begin_transaction=True, with_for_update=True) as session:
        await session.execute(sa.delete(db.Log).where(db.Log.flow_run_id == _RUN))
        await session.execute(sa.delete(db.Artifact).where(db.Artifact.flow_run_id == _RUN))
        await session.execute(sa.delete(db.TaskRun).where(db.TaskRun.flow_run_id == _RUN))
        await session.execute(sa.delete(db.FlowRun).where(db.FlowRun.id == _RUN))
        await session.execute(sa.delete(db.Flow).where(db.Flow.name == FLOW))
