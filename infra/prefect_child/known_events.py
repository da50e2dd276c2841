"""Events that are stored already, kept from Prefect's way of storing them in SQLite.

A client sends again what was not confirmed when its connection broke. Where all events of a batch are known, Prefect
3.9 inserts a row of nothing, which fails; after five tries it drops whatever else is waiting, with a traceback.
"""

from typing import Any

import sqlalchemy as sa
from prefect.server.database import orm_models
from prefect.server.events.schemas.events import ReceivedEvent
from prefect.server.events.storage import database
from sqlalchemy.ext.asyncio import AsyncSession


def leave_out_known_events() -> None:
    """From now on Prefect's own function gets only what is new (3.9.1, pinned)."""
    of_prefect: Any = database._write_sqlite_events
    table: Any = orm_models.Event.__table__

    async def write_new(session: AsyncSession, events: list[ReceivedEvent]) -> None:
        for batch in database._in_safe_batches(events):
            known = set(await session.scalars(sa.select(table.c.id).where(table.c.id.in_([one.id for one in batch]))))
            new = [event for event in batch if event.id not in known]
            if new:
                await of_prefect(session=session, events=new)

    database._write_sqlite_events = write_new
