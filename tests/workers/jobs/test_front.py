import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flows.plan import Plan
from infra.errors import ModelNotFound
from infra.types import KeyName, PoolId, RunId
from tests.fakes_front import TOKEN, FakeFront
from workers.jobs.front import Front, FrontGone

ANN = KeyName("ann")


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeFront]:
    async with FakeFront(tmp_path) as front:
        yield front


@pytest.fixture
async def front(fake: FakeFront) -> AsyncIterator[Front]:
    async with Front(fake.home, TOKEN, patience_s=0.0) as ours:
        yield ours


async def test_it_asks_for_a_plan(front: Front, fake: FakeFront) -> None:
    plan = Plan.from_json(await front.plan("chat", {"model": "m", "messages": []}, ANN))
    assert (plan.flow, plan.model) == ("chat", "m")
    assert [(ask.flow, ask.key) for ask in fake.plans] == [("chat", "ann")]


async def test_what_the_front_refuses_is_raised_as_it_was_there(front: Front) -> None:
    with pytest.raises(ModelNotFound, match="Model 'nobody' is not available"):
        await front.plan("chat", {"model": "nobody", "messages": []}, ANN)


async def test_it_knows_the_cards(front: Front, fake: FakeFront) -> None:
    fake.cards = ["cpu", "cuda-1"]
    assert await front.cards() == (PoolId("cpu"), PoolId("cuda-1"))


@pytest.mark.parametrize("own", [True, False])
async def test_it_ends_a_run_of_the_front(front: Front, fake: FakeFront, own: bool) -> None:
    run = RunId("5d2c0f6e-0000-4000-8000-000000000000")
    fake.own_runs = {run} if own else set()
    assert await front.cancel(run) is own
    assert fake.cancelled == [run]


async def test_a_front_elsewhere_is_found(front: Front, fake: FakeFront) -> None:
    """It restarts, and the system gives it another port."""
    old = fake.url
    await fake.stop()
    await fake.start()
    assert fake.url != old
    assert await front.cards() == (PoolId("cpu"),)


async def test_a_front_that_is_gone_is_waited_for(fake: FakeFront) -> None:
    await fake.stop()
    async with Front(fake.home, TOKEN, patience_s=10.0) as front:
        asking = asyncio.create_task(front.cards())
        await asyncio.sleep(0.1)
        await fake.start()
        assert await asking == (PoolId("cpu"),)


async def test_one_that_does_not_come_back_is_said_to_be_gone(front: Front, fake: FakeFront) -> None:
    await fake.stop()
    with pytest.raises(FrontGone, match="the front of this install does not answer"):
        await front.cards()
    with pytest.raises(FrontGone):
        await front.cancel(RunId("x"))
    with pytest.raises(FrontGone):
        await front.connect("/internal/leases")


@pytest.mark.parametrize("content", [b"", b"{", b'{"url": "file:///etc"}'])
async def test_no_address_is_no_front(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "front.json").write_bytes(content)
    async with Front(tmp_path, TOKEN, patience_s=0.0) as front:
        with pytest.raises(FrontGone, match="does not say where it listens"):
            await front.cards()


async def test_another_token_opens_nothing(fake: FakeFront) -> None:
    async with Front(fake.home, "another", patience_s=0.0) as front:
        with pytest.raises(FrontGone, match="HTTP 404"):
            await front.cards()
        with pytest.raises(FrontGone):
            await front.connect("/internal/leases")
