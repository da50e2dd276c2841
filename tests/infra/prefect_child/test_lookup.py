"""Tests of finding Prefect's ids, with its tables in a file."""

import logging

import pytest
import sqlalchemy as sa
from prefect.server.database import PrefectDBInterface

from infra.prefect_child.batch import NotReady
from infra.prefect_child.lookup import FRESH_S, PATIENCE_S, Places
from tests.infra.prefect_child.prefect_database import sqlite_db

__all__ = ["sqlite_db"]

pytestmark = pytest.mark.slow


class Clock:
    """Seconds that pass when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def deploy(db: PrefectDBInterface, flow: str) -> None:
    async with db.session_context(begin_transaction=True) as session:
        made = db.Flow(name=flow, tags=["ours"])
        session.add(made)
        await session.flush()
        session.add(db.Deployment(name=flow, flow_id=made.id))


async def make_pool(db: PrefectDBInterface, name: str) -> None:
    async with db.session_context(begin_transaction=True) as session:
        pool = db.WorkPool(name=name, type="coderai-card", base_job_template={})
        session.add(pool)
        await session.flush()
        queue = db.WorkQueue(name="default", work_pool_id=pool.id, priority=1)
        session.add(queue)
        await session.flush()
        pool.default_queue_id = queue.id


async def test_a_run_belongs_to_the_deployment_and_the_pool_of_these_names(sqlite_db: PrefectDBInterface) -> None:
    for pool in ("head", "cpu"):
        await make_pool(sqlite_db, pool)
    await deploy(sqlite_db, "chat")
    places = Places(sqlite_db)
    await places.prepare({"chat"}, {"cpu"})
    found = places.snapshot
    placed = places.place("chat", "cpu")
    assert (placed.flow_id, placed.deployment_id) == (found.flows["chat"].id, found.deployments["chat"].id)
    assert (placed.queue_id, placed.queue_name) == (found.queues["cpu"].queue.id, "default")
    for elsewhere in ("service:far", None):
        assert places.place("chat", elsewhere).queue_id == found.queues["head"].queue.id


async def test_a_deployment_is_waited_for_and_then_gone_without(
    sqlite_db: PrefectDBInterface, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    places = Places(sqlite_db, clock=clock)
    for _ in range(3):
        with pytest.raises(NotReady, match="'chat' does not exist yet"):
            await places.prepare({"chat"}, set())
        clock.now += PATIENCE_S / 3
    with caplog.at_level(logging.WARNING):
        await places.prepare({"chat"}, set())
        await places.prepare({"chat"}, set())
    assert places.place("chat", None).deployment_id is None
    assert len(caplog.records) == 1
    assert "without a deployment" in caplog.text


async def test_a_deployment_that_comes_late_is_found(sqlite_db: PrefectDBInterface) -> None:
    clock = Clock()
    places = Places(sqlite_db, clock=clock)
    with pytest.raises(NotReady):
        await places.prepare({"chat"}, set())
    await deploy(sqlite_db, "chat")
    clock.now += 2
    await places.prepare({"chat"}, set())
    assert places.place("chat", None).deployment_id is not None


async def test_what_is_known_is_believed_for_a_while(sqlite_db: PrefectDBInterface) -> None:
    clock = Clock()
    places = Places(sqlite_db, clock=clock)
    await deploy(sqlite_db, "chat")
    await places.prepare({"chat"}, set())
    first = places.snapshot
    clock.now += FRESH_S / 2
    await places.prepare({"chat"}, set())
    assert places.snapshot is first
    clock.now += FRESH_S
    await places.prepare({"chat"}, set())
    assert places.snapshot is not first
    places.forget()
    await places.prepare({"chat"}, set())
    assert places.place("chat", None).deployment_id is not None


async def test_a_flow_that_needs_no_deployment_is_made_once(sqlite_db: PrefectDBInterface) -> None:
    places = Places(sqlite_db, patience_s=None)
    for _ in range(2):
        await places.prepare({"chat"}, set())
        places.forget()
    async with sqlite_db.session_context() as session:
        assert await session.scalar(sa.select(sa.func.count()).select_from(sqlite_db.Flow)) == 1
