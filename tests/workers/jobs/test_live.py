import asyncio
from uuid import uuid4

import pytest

from workers.jobs.live import Job


async def test_it_is_ended_once() -> None:
    """The first wish says why; a second would cut short the writing of the state."""
    job = Job(uuid4())
    job.task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    job.stop("cancelled")
    job.stop("stopped")
    assert (job.end, job.task.cancelling()) == ("cancelled", 1)
    with pytest.raises(asyncio.CancelledError):
        await job.task


async def test_it_is_ended_before_it_has_begun() -> None:
    job = Job(uuid4())
    job.stop("stopped")
    assert job.end == "stopped"
