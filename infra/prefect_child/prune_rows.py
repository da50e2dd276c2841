"""Deleting finished runs from Prefect's tables, a few at a time, with everything that belongs to them.

A chunk is one transaction: whoever is killed leaves no log lines without a run. States and task runs go by the tables'
own ON DELETE CASCADE; log lines and artifacts have none. Events are not ours to delete: Prefect's own vacuum does.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from prefect.server.database import PrefectDBInterface
from prefect.server.schemas.states import TERMINAL_STATES
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from infra.prefect_child.trouble import in_our_words

_LEAST_PARAMETERS: Final = 500
"""Fewer than any database takes in one statement."""


class RunRows:
    """Flow runs of Prefect's database that are over; never one in a state that is not terminal."""

    def __init__(self, db: PrefectDBInterface) -> None:
        self._db = db
        self._table: Any = db.FlowRun.__table__

    async def count(self) -> int:
        """How many there are, child runs included.

        Raises:
            CoderAIError: the database does not answer.
        """
        ended = self._table.c.state_type.in_(TERMINAL_STATES)
        try:
            async with self._db.session_context() as session:
                counted = await session.execute(sa.select(sa.func.count()).select_from(self._table).where(ended))
                return int(counted.scalar_one())
        except (SQLAlchemyError, OSError) as error:
            raise in_our_words(error) from error

    async def which_are_over(self, runs: Sequence[UUID]) -> set[UUID]:
        """Those of `runs` that are here and over.

        Raises:
            CoderAIError: the database does not answer.
        """
        columns, over = self._table.c, set[UUID]()
        try:
            async with self._db.session_context() as session:
                for some in _slices(runs):
                    query = sa.select(columns.id).where(columns.id.in_(some), columns.state_type.in_(TERMINAL_STATES))
                    over.update(await session.scalars(query))
        except (SQLAlchemyError, OSError) as error:
            raise in_our_words(error) from error
        return over

    async def delete_oldest(self, limit: int, ended_before: datetime | None = None) -> list[UUID]:
        """Delete at most `limit` of those that ended first, each with its child runs; returns the ids of all.

        A child run goes with its parent alone, and stays, as a run of its own, if it is still under way.

        Raises:
            CoderAIError: the database does not answer; the chunk is as it was.
        """
        try:
            async with self._db.session_context(begin_transaction=True, with_for_update=True) as session:
                runs = list(await session.scalars(self.oldest(limit, ended_before)))
                generation = runs
                while generation:
                    generation = await self._children(session, generation)
                    runs += generation
                await self._delete(session, runs)
        except (SQLAlchemyError, OSError) as error:
            raise in_our_words(error) from error
        return runs

    def oldest(self, limit: int, ended_before: datetime | None) -> Any:
        """The query for runs that are nobody's children and ended first."""
        columns = self._table.c
        mine = sa.and_(columns.parent_task_run_id.is_(None), columns.state_type.in_(TERMINAL_STATES))
        # As a CASE it is no bait for the query planner: the index by `end_time` finds the oldest at once.
        query = sa.select(columns.id).where(sa.case((mine, 1), else_=0) == 1, columns.end_time.is_not(None))
        if ended_before is not None:
            query = query.where(columns.end_time < ended_before)
        return query.order_by(columns.end_time).limit(limit).with_for_update(skip_locked=True)

    async def _children(self, session: AsyncSession, runs: Sequence[UUID]) -> list[UUID]:
        columns, tasks = self._table.c, self._db.TaskRun.__table__.c
        children: list[UUID] = []
        for some in _slices(runs):
            query = (
                sa.select(columns.id)
                .join(self._db.TaskRun.__table__, tasks.id == columns.parent_task_run_id)
                .where(tasks.flow_run_id.in_(some), columns.state_type.in_(TERMINAL_STATES))
            )
            children += await session.scalars(query)
        return children

    async def _delete(self, session: AsyncSession, runs: Sequence[UUID]) -> None:
        db = self._db
        for some in _slices(runs):
            await session.execute(sa.delete(self._table).where(self._table.c.id.in_(some)))
            for kind in (db.Log, db.Artifact, db.ArtifactCollection):
                table: Any = kind.__table__
                await session.execute(sa.delete(table).where(table.c.flow_run_id.in_(some)))


def _slices(runs: Sequence[UUID]) -> list[Sequence[UUID]]:
    return [runs[start : start + _LEAST_PARAMETERS] for start in range(0, len(runs), _LEAST_PARAMETERS)]
