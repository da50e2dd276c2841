"""Events that come again, beside others that are new."""

from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from prefect.server.database import PrefectDBInterface
from prefect.server.events.schemas.events import ReceivedEvent, Resource
from prefect.server.events.storage import database
from sqlalchemy.exc import IntegrityError

from infra.prefect_child.known_events import leave_out_known_events
from tests.infra.prefect_child.prefect_database import sqlite_db

__all__ = ["sqlite_db"]

pytestmark = pytest.mark.slow


def event() -> ReceivedEvent:
    resource = Resource({"prefect.resource.id": f"prefect.flow-run.{uuid4()}"})
    return ReceivedEvent(occurred="2026-01-02T03:04:05Z", event="x", resource=resource, id=uuid4())


async def store(db: PrefectDBInterface, *events: ReceivedEvent) -> set[UUID]:
    """Store them as Prefect's persister does; the ids of all that are stored then."""
    async with db.session_context() as session:
        await database.write_events(session=session, events=[*events])
        await session.commit()
        return {UUID(str(id_)) for id_ in await session.scalars(sa.select(db.Event.id))}


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_write_sqlite_events", database._write_sqlite_events)
    leave_out_known_events()


async def test_prefect_alone_cannot_store_what_it_has(sqlite_db: PrefectDBInterface) -> None:
    """If this fails, Prefect has mended it, and the module may go."""
    known = event()
    await store(sqlite_db, known)
    with pytest.raises(IntegrityError):
        await store(sqlite_db, known)


@pytest.mark.usefixtures("patched")
async def test_what_is_known_is_left_out_and_what_is_new_is_stored(sqlite_db: PrefectDBInterface) -> None:
    known, new = event(), event()
    assert await store(sqlite_db, known) == {known.id}
    assert await store(sqlite_db, known) == {known.id}
    assert await store(sqlite_db, known, new) == {known.id, new.id}
    assert await store(sqlite_db) == {known.id, new.id}
