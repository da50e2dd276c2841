import asyncio
from uuid import UUID, uuid4

from workers.jobs.crew import Crew, either
from workers.jobs.live import Job
from workers.jobs.worker import Desk


class Ours:
    """No deployment is ours."""

    async def flow_of(self, client: object, deployment: UUID | None) -> str | None:
        return None


def crew_of(*jobs: Job) -> tuple[Crew, Desk]:
    desk = Desk({}, Ours())
    desk.live.update({job.run: job for job in jobs})
    return Crew(desk), desk


async def running(desk: Desk, *, last_words_s: float = 0.0) -> Job:
    """A job that takes a moment for its last words."""
    job = Job(uuid4(), started_at=100.0)

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(last_words_s)
            del desk.live[job.run]

    desk.live[job.run] = job
    job.task = asyncio.create_task(work())
    await asyncio.sleep(0)
    job.begin()
    return job


async def test_a_job_is_cancelled() -> None:
    crew, desk = crew_of()
    job = await running(desk)
    assert crew.cancel(job.run, 101.0)
    assert job.end == "cancelled"


async def test_an_old_wish_does_not_end_a_new_try() -> None:
    """After a new connection Prefect tells the events of the last minute once more."""
    crew, desk = crew_of()
    job = await running(desk)
    assert not crew.cancel(job.run, 99.0)
    assert job.end is None
    assert job.task is not None
    job.task.cancel()


async def test_a_run_of_somebody_else_is_not_ours() -> None:
    crew, _desk = crew_of()
    assert not crew.cancel(uuid4(), 101.0)


async def test_the_end_waits_for_last_words() -> None:
    crew, desk = crew_of()
    jobs = [await running(desk, last_words_s=0.1) for _ in range(3)]
    assert await crew.stop("stopped", 2.0) == 0
    assert {job.end for job in jobs} == {"stopped"}


async def test_the_end_does_not_wait_for_ever() -> None:
    crew, desk = crew_of()
    await running(desk, last_words_s=60.0)
    assert await crew.stop("stopped", 0.1) == 1


async def test_it_waits_for_an_event_or_for_the_time() -> None:
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    started_s = loop.time()
    await either(event, 0.1)
    assert loop.time() - started_s >= 0.1
    event.set()
    async with asyncio.timeout(30):
        await either(event, 3600)
