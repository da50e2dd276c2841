import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from infra.errors import ModelNotFound, NoCapacity, NoRoom, Nowhere, QueueFull
from infra.types import EngineId, KeyName, ModelName, RunId
from tests.fakes_front import TOKEN, FakeFront
from workers.bounds import POOL_PAUSED
from workers.jobs import leases as module
from workers.jobs.front import Front, FrontGone
from workers.jobs.leases import JobLease, Leases, _Patience
from workers.types import Capability, Demand
from workers.wire import LeaseAsk, LeaseOver

ASK = LeaseAsk(
    run=RunId("r"),
    step="generate",
    flow="chat",
    key=KeyName("ann"),
    model=ModelName("m"),
    demand=Demand(ModelName("m"), Capability.CHAT),
)


def silent(_why: str) -> None:
    """Nobody listens."""


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeFront]:
    async with FakeFront(tmp_path, "http://127.0.0.1:1") as front:
        yield front


@pytest.fixture
async def leases(fake: FakeFront) -> AsyncIterator[Leases]:
    async with Front(fake.home, TOKEN, patience_s=0.0) as front:
        yield Leases(front, nowhere_s=5.0, gone_s=3.0)


async def ended(fake: FakeFront, lease: JobLease, leases: Leases) -> None:
    lease.release()
    await leases.close()
    async with asyncio.timeout(2):
        while fake.held:
            await asyncio.sleep(0.01)


async def test_a_lease_has_all_that_a_task_needs(leases: Leases, fake: FakeFront) -> None:
    lease = await leases.acquire(ASK, silent)
    engine = lease.engine
    assert (engine.id, engine.pool, engine.base_url) == ("cpu/m", "cpu", "http://127.0.0.1:1/v1")
    assert engine.headers == {"Authorization": "Bearer engine-key"}
    assert lease.placement.reason == "it holds the model"
    assert (fake.held, fake.leases) == (1, [ASK])
    await ended(fake, lease, leases)


async def test_a_step_that_takes_long_keeps_its_lease(leases: Leases, fake: FakeFront) -> None:
    lease = await leases.acquire(ASK, silent)
    await asyncio.sleep(1.2)
    assert fake.held == 1
    lease.over = LeaseOver(completion_tokens=9)
    await ended(fake, lease, leases)
    assert fake.overs == [LeaseOver(completion_tokens=9)]


async def test_its_end_says_how_the_step_went(leases: Leases, fake: FakeFront) -> None:
    lease = await leases.acquire(ASK, silent)
    lease.over = LeaseOver(prompt_tokens=5, completion_tokens=2)
    await ended(fake, lease, leases)
    assert fake.overs == [LeaseOver(prompt_tokens=5, completion_tokens=2)]


async def test_the_end_of_a_cancelled_step_has_no_words(leases: Leases, fake: FakeFront) -> None:
    await ended(fake, await leases.acquire(ASK, silent), leases)
    assert fake.overs == [None]


async def test_where_nothing_is_free_it_asks_again(leases: Leases, fake: FakeFront) -> None:
    refusals = [QueueFull("the line is full", retry_after_s=0.05), NoRoom("no room", retry_after_s=0.05)]
    fake.refuse = lambda _ask: refusals.pop() if refusals else None
    lease = await leases.acquire(ASK, silent)
    assert not refusals
    assert lease.waited_s >= 0.1
    await ended(fake, lease, leases)


async def test_what_has_no_room_is_not_asked_for_for_ever(leases: Leases, fake: FakeFront) -> None:
    fake.refuse = lambda _ask: NoRoom("no card has the memory", retry_after_s=0.1)
    leases.nowhere_s = 0.25
    with pytest.raises(NoRoom, match="no card has the memory"):
        await leases.acquire(ASK, silent)


@pytest.mark.parametrize(
    "refusal",
    [
        NoRoom("paused in the flow-run UI", retry_after_s=0.1, code=POOL_PAUSED),
        NoCapacity("this install takes no new requests", retry_after_s=0.1, code=POOL_PAUSED),
        QueueFull("no free slot in time", retry_after_s=0.1),
    ],
)
async def test_what_ends_by_itself_fails_no_job(leases: Leases, fake: FakeFront, refusal: NoCapacity) -> None:
    """A pool is paused for a night; a heap of jobs takes hours."""
    refusals = [refusal] * 5
    fake.refuse = lambda _ask: refusals.pop() if refusals else None
    leases.nowhere_s, told = 0.25, list[str]()
    lease = await leases.acquire(ASK, told.append)
    assert told == [refusal.message], "each reason once"
    await ended(fake, lease, leases)


def test_a_resumed_pool_is_felt_within_seconds() -> None:
    """The front names ten seconds to clients."""
    patience = _Patience(600.0, 30.0)
    assert patience.pause_s(NoRoom("paused", retry_after_s=10, code=POOL_PAUSED), 0.0) == 2.0


async def test_what_no_waiting_mends_is_raised_at_once(leases: Leases, fake: FakeFront) -> None:
    asked: list[LeaseAsk] = []

    def refuse(ask: LeaseAsk) -> ModelNotFound:
        asked.append(ask)
        return ModelNotFound("Model 'm' is not available", param="model")

    fake.refuse = refuse
    with pytest.raises(ModelNotFound) as caught:
        await leases.acquire(ASK, silent)
    assert (caught.value.param, len(asked)) == ("model", 1)


async def test_what_waits_for_somebody_is_raised_at_once(leases: Leases, fake: FakeFront) -> None:
    told: list[str] = []
    fake.refuse = lambda _ask: Nowhere("no pool can take model 'm': cpu/m: given up", retry_after_s=10)
    async with asyncio.timeout(2):
        with pytest.raises(Nowhere, match="given up"):
            await leases.acquire(ASK, told.append)
    assert told == []


async def test_where_an_engine_has_failed_the_front_may_not_know_it_yet(leases: Leases, fake: FakeFront) -> None:
    tried = ASK.model_copy(update={"tried": ((EngineId("cpu/m"), 1),)})
    refusals = [Nowhere("no pool can take model 'm'", retry_after_s=0.1)]
    fake.refuse = lambda _ask: refusals.pop() if refusals else None
    await ended(fake, await leases.acquire(tried, silent), leases)
    fake.refuse = lambda _ask: Nowhere("no pool can take model 'm'", retry_after_s=0.1)
    leases.lasting_s = 0.25
    with pytest.raises(Nowhere):
        await leases.acquire(tried, silent)


async def test_a_failure_is_told_before_another_slot_is_asked_for(
    leases: Leases, fake: FakeFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the front has heard of it, the engine is well, and the step has no other place to go to."""
    close = module._close

    async def slowly(*how: Any) -> None:
        await asyncio.sleep(0.2)
        await close(*how)

    monkeypatch.setattr(module, "_close", slowly)
    first = await leases.acquire(ASK, silent)
    first.over = LeaseOver(failed=True)
    first.release()
    heard: list[LeaseOver | None] = []

    def refuse(_ask: LeaseAsk) -> None:
        heard.extend(fake.overs)

    fake.refuse = refuse
    second = await leases.acquire(ASK.model_copy(update={"tried": ((first.engine.id, 1),)}), silent)
    assert heard == [LeaseOver(failed=True)]
    await ended(fake, second, leases)


async def test_a_restarting_front_is_waited_for(leases: Leases, fake: FakeFront) -> None:
    await fake.stop()
    asking = asyncio.create_task(leases.acquire(ASK, silent))
    await asyncio.sleep(0.1)
    await fake.start()
    await ended(fake, await asking, leases)


async def test_one_that_stays_away_is_an_error(leases: Leases, fake: FakeFront) -> None:
    await fake.stop()
    leases.gone_s = 0.1
    with pytest.raises(FrontGone):
        await leases.acquire(ASK, silent)


async def test_who_is_cancelled_while_it_waits_holds_nothing(leases: Leases, fake: FakeFront) -> None:
    """The slot may be given in the very moment."""
    asking = asyncio.create_task(leases.acquire(ASK, silent))
    while not fake.leases:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(2):
        while fake.held:
            await asyncio.sleep(0.01)
    assert fake.overs == [None]
    await leases.close()


async def test_a_front_that_dies_does_not_end_the_step(leases: Leases, fake: FakeFront) -> None:
    """Its engines outlive it; that the lease is over cannot be told, and need not be."""
    lease = await leases.acquire(ASK, silent)
    await fake.stop()
    lease.over = LeaseOver()
    lease.release()
    await leases.close()
