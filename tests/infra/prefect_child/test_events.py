"""Tests of the events of bad ends: they must be what Prefect's own instrumentation would have sent."""

from typing import Any
from uuid import UUID

import pytest
from prefect.server import models, schemas
from prefect.server.database import PrefectDBInterface
from prefect.server.events.schemas.events import Event
from prefect.server.models.events import flow_run_state_change_event

from infra.prefect_child.batch import Recorded
from infra.prefect_child.events import bad_end, untold
from infra.prefect_child.lookup import Places
from infra.prefect_child.rows import Rows, add_run, pool_of, state_id
from infra.prefect_child.write import Recorder
from infra.records import RunRecord
from tests.infra.prefect_child.prefect_database import sqlite_db
from tests.infra.prefect_child.records import one_step
from tests.infra.prefect_child.test_lookup import deploy, make_pool

__all__ = ["sqlite_db"]

pytestmark = pytest.mark.slow


async def _ours(db: PrefectDBInterface, run: RunRecord) -> Event:
    """The event as the recorder makes it; the run is recorded."""
    places = Places(db)
    await Recorder(db, places).record([Recorded(run, {})])
    rows = Rows()
    add_run(rows, Recorded(run, {}), places.place(run.flow, pool_of(run)), rows_now())
    return bad_end(rows.flow_runs[0], rows.states[-1], places.snapshot)


def rows_now() -> Any:
    """When the rows were made: in no event."""
    return schemas.states.State(type="RUNNING").timestamp


async def test_it_is_what_prefect_would_have_sent(sqlite_db: PrefectDBInterface) -> None:
    db = sqlite_db
    for pool in ("head", "cpu"):
        await make_pool(db, pool)
    await deploy(db, "chat")
    run = one_step("failed", error="no engine answered")
    ours = await _ours(db, run)
    async with db.session_context() as session:
        flow_run = await session.get(db.FlowRun, UUID(run.id))
        assert flow_run is not None
        assert flow_run.state is not None
        state = flow_run.state.as_state()
        theirs = await flow_run_state_change_event(
            session=session,
            occurred=state.timestamp,
            flow_run=flow_run,
            initial_state_id=None,
            initial_state=schemas.states.State(type=schemas.states.StateType.RUNNING, name="Running"),
            validated_state_id=state.id,
            validated_state=state,
        )
    assert ours.model_dump() == theirs.model_dump()


async def test_it_is_told_until_the_feed_has_it(sqlite_db: PrefectDBInterface) -> None:
    db = sqlite_db
    await deploy(db, "chat")
    run = one_step("failed", error="no engine answered")
    event = await _ours(db, run)
    assert event.id == state_id(UUID(run.id), "failed")
    assert await untold(db, [event]) == [event]
    assert await untold(db, []) == []
    async with db.session_context(begin_transaction=True) as session:
        session.add(db.Event(**_columns(event)))
    assert await untold(db, [event]) == []


async def test_a_run_that_has_gone_on_tells_nothing_old(sqlite_db: PrefectDBInterface) -> None:
    db = sqlite_db
    await deploy(db, "chat")
    run = one_step("failed", error="no engine answered")
    event = await _ours(db, run)
    async with db.session_context(begin_transaction=True) as session:
        again = schemas.states.State(type=schemas.states.StateType.SCHEDULED, name="AwaitingRetry")
        await models.flow_runs.set_flow_run_state(session, UUID(run.id), again, force=True)
    assert await untold(db, [event]) == []


def _columns(event: Event) -> dict[str, Any]:
    return dict(event.receive().as_database_row())
