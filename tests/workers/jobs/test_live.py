import asyncio
from uuid import uuid4

import pytest
from prefect.states import Completed

from workers.jobs.live import BEGIN_S, Job


async def test_it_is_ended_once() -> None:
    """The first wish says why; a second would cut short the writing of the state."""
    job = Job(uuid4())
    job.task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    job.begin()
    job.stop("cancelled")
    job.stop("stopped")
    assert (job.end, job.task.cancelling()) == ("cancelled", 1)
    with pytest.raises(asyncio.CancelledError):
        await job.task


async def test_before_its_own_code_it_is_given_a_moment() -> None:
    """Prefect's engine, cancelled there, would say that it crashed."""
    job = Job(uuid4())

    async def engine() -> None:
        await asyncio.sleep(0.05)
        with pytest.raises(asyncio.CancelledError):
            job.begin()
        await asyncio.sleep(BEGIN_S + 0.1)

    job.task = asyncio.create_task(engine())
    job.stop("cancelled")
    await job.task
    assert job.task.cancelling() == 0


async def test_one_that_does_not_come_to_it_is_ended_there() -> None:
    """It waits for its time, say."""
    job = Job(uuid4())
    job.task = asyncio.create_task(asyncio.sleep(60))
    job.stop("cancelled")
    async with asyncio.timeout(BEGIN_S + 1):
        await asyncio.wait({job.task})
    assert job.task.cancelled()


async def test_what_has_ended_ends_as_it_has() -> None:
    job = Job(uuid4())
    job.task = asyncio.create_task(asyncio.sleep(0.01))
    job.begin()
    job.said = Completed()
    job.stop("cancelled")
    await job.task
    assert job.task.cancelling() == 0


async def test_it_is_ended_before_it_has_begun() -> None:
    job = Job(uuid4())
    job.stop("stopped")
    assert job.end == "stopped"
