"""Pruning Prefect's own tables: everything of a run goes, nothing of another one, on both databases."""

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from prefect.server.database import PrefectDBInterface

from infra.blobs import Blobs
from infra.errors import NotFound
from infra.prefect_child.batch import Recorded
from infra.prefect_child.lookup import Places
from infra.prefect_child.prune import Limits, Pruner
from infra.prefect_child.prune_rows import RunRows
from infra.prefect_child.write import Recorder
from infra.records import StepRecord
from infra.run_files import RunFiles
from infra.types import RunId
from tests.infra.prefect_child.prefect_database import postgres_db, postgres_url, sqlite_db
from tests.infra.prefect_child.spooled import make_run

__all__ = ["postgres_db", "postgres_url", "sqlite_db"]

pytestmark = [pytest.mark.slow]

KINDS = ("FlowRun", "FlowRunState", "TaskRun", "TaskRunState", "Log", "Artifact")


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest) -> PrefectDBInterface:
    found: PrefectDBInterface = request.getfixturevalue(f"{request.param}_db")
    return found


async def counts(db: PrefectDBInterface) -> dict[str, int]:
    async with db.session_context() as session:
        return {
            kind: (await session.execute(sa.select(sa.func.count()).select_from(getattr(db, kind)))).scalar_one()
            for kind in KINDS
        }


async def fill(db: PrefectDBInterface, count: int, *, steps: int, ended_at: float) -> list[UUID]:
    """Runs as the recorder writes them, a second apart, the last of which ends at `ended_at`."""
    recorder, ids = Recorder(db, Places(db, patience_s=None)), []
    for start in range(0, count, 100):
        batch = []
        for number in range(start, min(start + 100, count)):
            run = make_run(number)
            run.id = RunId(str(uuid4()))
            run.started_at, run.ended_at = ended_at - count + number, ended_at - count + number + 1.0
            step = run.steps[0]
            run.steps = [StepRecord(f"s{one}", "embed", (), "completed", step.attempts) for one in range(steps)]
            batch.append(Recorded(run, {"model": "m"}))
            ids.append(UUID(run.id))
        await recorder.record(batch)
    return ids


async def execute(db: PrefectDBInterface, *statements: Any) -> None:
    async with db.session_context(begin_transaction=True) as session:
        for statement in statements:
            await session.execute(statement)


async def ids_in(db: PrefectDBInterface) -> set[UUID]:
    async with db.session_context() as session:
        return set(await session.scalars(sa.select(db.FlowRun.__table__.c.id)))


def set_run(db: PrefectDBInterface, run: UUID, **values: Any) -> Any:
    table: Any = db.FlowRun.__table__
    return sa.update(table).where(table.c.id == run).values(**values)


def pruner(db: PrefectDBInterface, home: Path, days: float = 7.0, runs: int = 200_000) -> Pruner:
    return Pruner(RunRows(db), home, Limits(days, runs, "all"))


async def test_what_is_too_old_goes_with_everything_that_belongs_to_it(db: PrefectDBInterface, tmp_path: Path) -> None:
    before = await counts(db)
    now = time.time()
    await fill(db, 230, steps=3, ended_at=now - 8 * 86_400)
    kept = await fill(db, 40, steps=3, ended_at=now - 6 * 86_400)
    filled = await counts(db)
    assert (filled["FlowRun"] - before["FlowRun"], filled["TaskRunState"] - before["TaskRunState"]) == (270, 810)
    assert await pruner(db, tmp_path).prune() == 230
    after = await counts(db)
    assert await ids_in(db) >= set(kept)
    for kind in KINDS:
        assert (after[kind] - before[kind]) * 270 == (filled[kind] - before[kind]) * 40, kind
    assert await pruner(db, tmp_path, days=0.001).prune() == 40 + before["FlowRun"]
    assert set((await counts(db)).values()) == {0}


async def test_what_is_too_many_goes_oldest_first(db: PrefectDBInterface, tmp_path: Path) -> None:
    now = time.time()
    old = await fill(db, 130, steps=1, ended_at=now - 1000)
    new = await fill(db, 120, steps=1, ended_at=now - 10)
    files = RunFiles(tmp_path)
    for run in (old[0], new[-1]):
        files.keep_answer(str(run), b"x", "text/plain")
    assert await pruner(db, tmp_path, runs=120).prune() == 130
    assert await ids_in(db) == set(new)
    assert (files.answer(str(old[0])), files.answer(str(new[-1]))) == (None, (b"x", "text/plain"))
    assert await pruner(db, tmp_path, days=1e-9).prune() == 120


async def test_a_run_that_is_not_over_stays_whatever_its_age(db: PrefectDBInterface, tmp_path: Path) -> None:
    runs = await fill(db, 8, steps=2, ended_at=time.time() - 30 * 86_400)
    alive = ["RUNNING", "PENDING", "SCHEDULED", "CANCELLING", "PAUSED"]
    for run, state in zip(runs, alive, strict=False):
        # Prefect clears the end of a run that goes on; one with an end must not be pruned either.
        await execute(
            db, set_run(db, run, state_type=state, end_time=None if state == "SCHEDULED" else sa.text("end_time"))
        )
    assert await pruner(db, tmp_path, runs=1).prune() == 3
    assert await ids_in(db) == set(runs[:5])
    assert (await counts(db))["TaskRun"] == 10
    await execute(db, sa.delete(db.FlowRun))


async def test_child_runs_go_with_their_parent_unless_they_live(db: PrefectDBInterface, tmp_path: Path) -> None:
    now = time.time()
    (parent,) = await fill(db, 1, steps=2, ended_at=now - 8 * 86_400)
    child, living, grandchild = await fill(db, 3, steps=2, ended_at=now - 60)  # they ended later than their parent
    (young,) = await fill(db, 1, steps=2, ended_at=now)
    (old_child,) = await fill(db, 1, steps=1, ended_at=now - 9 * 86_400)

    async def beneath(run: UUID, above: UUID) -> None:
        tasks: Any = db.TaskRun.__table__
        task = sa.select(tasks.c.id).where(tasks.c.flow_run_id == above).limit(1).scalar_subquery()
        await execute(db, set_run(db, run, parent_task_run_id=task))

    for run, above in ((child, parent), (living, parent), (grandchild, child), (old_child, young)):
        await beneath(run, above)
    await execute(db, set_run(db, living, state_type="RUNNING", end_time=None))
    assert await pruner(db, tmp_path).prune() == 3
    assert await ids_in(db) == {living, young, old_child}
    await execute(db, sa.delete(db.FlowRun))


async def test_artifacts_of_the_artifacts_page_go_too(sqlite_db: PrefectDBInterface, tmp_path: Path) -> None:
    db = sqlite_db
    (run,) = await fill(db, 1, steps=1, ended_at=time.time() - 8 * 86_400)
    artifact = {"id": uuid4(), "key": "report", "type": "markdown", "flow_run_id": run}
    collection = {"id": uuid4(), "key": "report", "latest_id": artifact["id"], "flow_run_id": run}
    await execute(db, sa.insert(db.Artifact).values(artifact), sa.insert(db.ArtifactCollection).values(collection))
    assert await pruner(db, tmp_path).prune() == 1
    async with db.session_context() as session:
        left = await session.execute(sa.select(sa.func.count()).select_from(db.ArtifactCollection))
        assert left.scalar_one() == 0
    assert (await counts(db))["Artifact"] == 0


async def test_which_are_over(db: PrefectDBInterface) -> None:
    runs = await fill(db, 3, steps=1, ended_at=time.time())
    await execute(db, set_run(db, runs[1], state_type="RUNNING"))
    assert await RunRows(db).which_are_over([*runs, uuid4()]) == {runs[0], runs[2]}
    assert await RunRows(db).which_are_over([]) == set()
    await execute(db, sa.delete(db.FlowRun))


async def test_sqlite_fills_the_pages_of_pruned_runs_again(sqlite_db: PrefectDBInterface, tmp_path: Path) -> None:
    def pages(name: str) -> int:
        with closing(sqlite3.connect(tmp_path / "flows.db")) as database:
            return int(database.execute(f"PRAGMA {name}").fetchone()[0])

    await fill(sqlite_db, 1000, steps=2, ended_at=time.time() - 8 * 86_400)
    full = pages("page_count")
    assert await pruner(sqlite_db, tmp_path).prune() == 1000
    assert pages("page_count") <= full * 1.01  # it does not shrink …
    assert pages("freelist_count") > full / 2
    await fill(sqlite_db, 1000, steps=2, ended_at=time.time())
    assert pages("page_count") <= full * 1.05  # … and does not grow


async def test_requests_are_found_until_their_time(sqlite_db: PrefectDBInterface, tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "payloads")
    ref = blobs.put(b"{}")
    await Pruner(RunRows(sqlite_db), tmp_path, Limits(7.0, 10, "failed")).prune()
    assert blobs.get(ref) == b"{}"
    await Pruner(RunRows(sqlite_db), tmp_path, Limits(1e-9, 10, "failed")).prune()
    with pytest.raises(NotFound):
        blobs.get(ref)


async def test_the_oldest_are_found_by_an_index(sqlite_db: PrefectDBInterface) -> None:
    """Sorting all runs for every chunk would take longer than deleting them."""
    query = RunRows(sqlite_db).oldest(10, datetime.now(UTC) - timedelta(days=1))
    async with sqlite_db.session_context() as session:
        connection = await session.connection()
        text = str(query.compile(connection.engine, compile_kwargs={"literal_binds": True}))
        plan = [row[-1] for row in await session.execute(sa.text(f"EXPLAIN QUERY PLAN {text}"))]
    assert plan == ["SEARCH flow_run USING INDEX ix_flow_run__end_time_desc (end_time>? AND end_time<?)"]
