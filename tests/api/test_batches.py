"""Batches whose run ended without a word: cancelled early, given up, its worker process dead, its record gone."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from api.batches import BatchWatch, begin
from infra.batch_rows import Batch, NewBatch
from infra.file_rows import NewFile
from infra.tokens import Key
from infra.types import KeyName
from tests.api.beside_prefect import Flows, beside_prefect
from tests.api.conftest import StartFront

ME = Key(KeyName("user"), "user")


@pytest.fixture
async def flows(start_front: StartFront) -> AsyncIterator[Flows]:
    async with beside_prefect(start_front) as both:
        yield both


async def begun(flows: Flows) -> Batch:
    services = flows.front.services
    files = services.files.files
    incoming = files.begin(ME.name, 10)
    incoming.write(b"{}")
    file = files.add(incoming, NewFile(ME.name, "a", "batch"))
    return await begin(services, ME, NewBatch(key=ME.name, flow="chat", endpoint="/e", input_file=file.id))


def now(flows: Flows, batch: Batch) -> Batch:
    return flows.front.services.files.batches.get(batch.id, None)


def set_state(flows: Flows, batch: Batch, kind: str, message: str | None = None) -> None:
    assert batch.run is not None
    flows.prefect.runs[batch.run]["state"] |= {"type": kind, "name": kind.title(), "message": message}


async def looked(flows: Flows) -> None:
    """One look of the watch."""
    watching = asyncio.create_task(BatchWatch(flows.front.services, 60).keep())
    await asyncio.sleep(0.3)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


@pytest.mark.parametrize(
    ("kind", "message", "status"),
    [("CANCELLED", None, "cancelled"), ("FAILED", "it broke", "failed"), ("RUNNING", None, "validating")],
)
async def test_the_end_of_its_run_is_its_end(flows: Flows, kind: str, message: str | None, status: str) -> None:
    batch = await begun(flows)
    set_state(flows, batch, kind, message)
    await looked(flows)
    ended = now(flows, batch)
    assert ended.status == status
    assert [problem.message for problem in ended.errors] == ([message] if message else [])


async def test_one_whose_worker_died_is_begun_again(flows: Flows) -> None:
    batch = await begun(flows)
    set_state(flows, batch, "CRASHED")
    await looked(flows)
    assert batch.run is not None
    assert flows.prefect.runs[batch.run]["state"]["name"] == "AwaitingRetry"
    assert now(flows, batch).status == "validating"


async def test_one_that_is_being_cancelled_when_its_worker_dies_is_not(flows: Flows) -> None:
    batch = await begun(flows)
    flows.front.services.files.batches.cancel(batch.id, None)
    set_state(flows, batch, "CRASHED")
    await looked(flows)
    assert now(flows, batch).status == "cancelled"


async def test_a_wish_that_prefect_did_not_hear_is_said_again(flows: Flows) -> None:
    batch = await begun(flows)
    set_state(flows, batch, "RUNNING")
    flows.front.services.files.batches.cancel(batch.id, None)
    await looked(flows)
    assert batch.run is not None
    assert flows.prefect.runs[batch.run]["state"]["type"] == "CANCELLING"


async def test_without_its_run(flows: Flows) -> None:
    gone = await begun(flows)
    assert gone.run is not None
    del flows.prefect.runs[gone.run]
    desk = flows.front.services.files
    unbegun = desk.batches.create(
        NewBatch(key=ME.name, flow="chat", endpoint="/e", input_file=gone.input_file), ME.name
    )
    await looked(flows)
    assert (now(flows, gone).status, now(flows, unbegun).status) == ("failed", "validating")
    with desk.files.changing() as session:
        from infra.tables import BatchRow

        row = session.get(BatchRow, unbegun.id)
        assert row is not None
        row.created_at -= timedelta(seconds=61)
        session.add(row)
    await looked(flows)
    assert now(flows, unbegun).status == "failed"
