"""Batches of records into Prefect's tables: one transaction each, a hundred times cheaper than its REST API.

The tables are Prefect's private affair: its version is pinned, and `contract.py` looks at each start whether what is
written here is what its API reads. A row moves only forward: what is over stays over, and what Prefect itself has done
to a run since (a retry, say) is never undone by a line that comes again.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from prefect.server.database import PrefectDBInterface
from prefect.server.events.schemas.events import Event
from prefect.server.utilities import database as columns
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from infra.prefect_child import events
from infra.prefect_child.batch import Batch, Recorded, RowsRefused, SchemaUnknown
from infra.prefect_child.crash import crash_left_behind
from infra.prefect_child.lookup import Places
from infra.prefect_child.rows import Row, Rows, add_run, pool_of
from infra.prefect_child.trouble import Locked, in_our_words
from infra.records import Boot
from infra.types import HEAD_POOL

log = logging.getLogger("infra.prefect_child.write")

_LOCKED_PAUSES_S = (0.05, 0.2, 0.8)
_MOVES = (
    "work_queue_id",
    "work_queue_name",
    "parameters",
    "tags",
    "labels",
    "state_type",
    "state_name",
    "state_timestamp",
    "end_time",
    "total_run_time",
    "updated",
)
"""What the line of a run's end changes in the row that its `running` line made."""
_SET_STATE = sa.text("UPDATE flow_run SET state_id = :state WHERE id = :run").bindparams(
    sa.bindparam("state", type_=columns.UUID()), sa.bindparam("run", type_=columns.UUID())
)
_RUNNING: sa.ColumnElement[str] = sa.literal_column("'RUNNING'")
_CANCELLING: sa.ColumnElement[str] = sa.literal_column("'CANCELLING'")


class Recorder:
    """Writes batches (`batch.Record`). `refusal` is why nothing may be written; None lets it write."""

    def __init__(self, db: PrefectDBInterface, places: Places, *, refusal: str | None = None) -> None:
        self._db = db
        self._places = places
        self.refusal = refusal

    async def record(self, batch: Batch) -> None:
        """Write the batch; see `batch.Record` for what it raises."""
        if self.refusal is not None:
            raise SchemaUnknown(self.refusal)
        runs = _latest(entry for entry in batch if isinstance(entry, Recorded))
        boots = [entry for entry in batch if isinstance(entry, Boot)]
        await self._tell(await self._persist(runs, boots))

    async def _persist(self, runs: list[Recorded], boots: list[Boot]) -> list[Event]:
        pauses_s = iter(_LOCKED_PAUSES_S)
        refused = False
        while True:
            try:
                return await self._write(runs, boots)
            except Locked:
                pause_s = next(pauses_s, None)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
            except RowsRefused:
                if refused:
                    raise
                refused = True  # a queue or a flow that we knew may be gone: once more with what there is now

    async def _write(self, runs: list[Recorded], boots: list[Boot]) -> list[Event]:
        try:
            pools = {pool_of(run.record) or HEAD_POOL for run in runs}
            await self._places.prepare({run.record.flow for run in runs}, pools)
            rows = self._rows(runs)
            async with self._db.session_context(begin_transaction=True, with_for_update=True) as session:
                if rows.flow_runs:
                    await self._insert(session, rows)
                crashed = [await crash_left_behind(self._db, session, boot) for boot in boots]
        except (SQLAlchemyError, OSError, OverflowError, UnicodeError) as error:
            self._places.forget()
            raise in_our_words(error) from error
        ends = {state["flow_run_id"]: state for state in rows.states if state["type"] in events.BAD_ENDS}
        failed = [(row, ends[row["id"]]) for row in rows.flow_runs if row["id"] in ends]
        snapshot = self._places.snapshot
        return [
            events.bad_end(row, state, snapshot) for row, state in (*failed, *(pair for of in crashed for pair in of))
        ]

    def _rows(self, runs: list[Recorded]) -> Rows:
        rows, now = Rows(), datetime.now(UTC)
        for run in runs:
            place = self._places.place(run.record.flow, pool_of(run.record))
            try:
                add_run(rows, run, place, now)
            except (ValueError, OverflowError) as error:
                raise RowsRefused(f"the run {run.record.id[:64]!r} has an id or a time that is none") from error
        return rows

    async def _insert(self, session: AsyncSession, rows: Rows) -> None:
        """All statements write, and the first one takes SQLite's one write lock: a read before it could leave us with
        a snapshot that may not be written to any more."""
        db = self._db
        moved = await self._upsert(session, rows.flow_runs)
        states = [state for state in rows.states if state["flow_run_id"] in moved]
        await self._add(session, db.FlowRunState, states)
        last = {state["flow_run_id"]: state["id"] for state in states}
        if last:
            await session.execute(_SET_STATE, [{"run": run, "state": state} for run, state in last.items()])
        await self._add(session, db.TaskRun, rows.task_runs)
        await self._add(session, db.TaskRunState, rows.task_states)
        await self._add(session, db.Log, rows.logs)
        await self._add(session, db.Artifact, rows.artifacts)

    async def _upsert(self, session: AsyncSession, flow_runs: list[Row]) -> set[UUID]:
        """Insert the rows, or move those forward that our `running` line made; returns the ids of both."""
        table: Any = self._db.FlowRun.__table__
        insert = self._db.queries.insert(table)
        new = insert.excluded
        forward = sa.and_(
            sa.or_(table.c.state_type == _RUNNING, table.c.state_type == _CANCELLING),
            table.c.run_count <= sa.literal_column("1"),  # a retry is Prefect's
            table.c.infrastructure_pid == new.infrastructure_pid,
            new.state_type != _RUNNING,
        )
        upsert = insert.on_conflict_do_update(
            index_elements=[table.c.id], set_={name: new[name] for name in _MOVES}, where=forward
        ).returning(table.c.id)
        return set(await session.scalars(upsert, flow_runs))

    async def _add(self, session: AsyncSession, kind: Any, rows: list[Row]) -> None:
        if rows:
            await session.execute(self._db.queries.insert(kind.__table__).on_conflict_do_nothing(), rows)

    async def _tell(self, bad_ends: list[Event]) -> None:
        """After the commit: an event without its run would be worse than a run without its event."""
        try:
            await events.send(await events.untold(self._db, bad_ends))
        except (SQLAlchemyError, OSError) as error:
            log.warning("the events of %d failed runs could not be sent: %s", len(bad_ends), type(error).__name__)


def _latest(entries: Iterable[Recorded]) -> list[Recorded]:
    """One entry a run, its end rather than its beginning: one statement cannot change a row twice."""
    latest: dict[str, Recorded] = {}
    for entry in entries:
        seen = latest.get(entry.record.id)
        if seen is None or seen.record.status == "running":
            latest[entry.record.id] = entry
    return list(latest.values())
