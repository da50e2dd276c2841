"""What a job has used: summed, and kept now and then."""

import asyncio

import pytest

from flows.job_usage import TELL_S, JobUsage
from infra.run_usage import RunUsage
from tasks.types import TaskResult, Usage


class Bench:
    """A job's usage, what was kept of it, and a clock."""

    def __init__(self, before: RunUsage | None = None) -> None:
        self.now_s = 0.0
        self.kept: list[RunUsage] = []
        self.deaf = 0
        self.usage = JobUsage(before, self._keep, clock=lambda: self.now_s)

    async def _keep(self, usage: RunUsage) -> bool:
        await asyncio.sleep(0)
        if self.deaf:
            self.deaf -= 1
            return False
        self.kept.append(usage)
        return True


async def test_steps_add_up_and_are_told_at_the_end() -> None:
    bench = Bench()
    bench.usage.add(TaskResult(b"", Usage(5, 2, 1)))
    bench.usage.add(TaskResult({"page": 1}, units=3.0))
    bench.usage.add(TaskResult({"merged": True}))
    await bench.usage.tell()
    assert bench.kept == []
    await bench.usage.tell(now=True)
    await bench.usage.tell(now=True)
    assert bench.kept == [RunUsage(5, 2, 1, 3.0)]


async def test_while_it_runs_the_sum_is_told_now_and_then() -> None:
    bench = Bench()
    for _ in range(4):
        bench.usage.add(TaskResult(b"", Usage(1)))
        bench.now_s += TELL_S / 2
        await bench.usage.tell()
    assert bench.kept == [RunUsage(2), RunUsage(4)]


async def test_earlier_executions_count() -> None:
    bench = Bench(RunUsage(7, units=1.0))
    await bench.usage.tell(now=True)
    assert bench.kept == []
    bench.usage.add(TaskResult(b"", Usage(1), units=1.0))
    await bench.usage.tell(now=True)
    assert bench.kept == [RunUsage(8, units=2.0)]


async def test_a_job_that_uses_nothing_has_nothing_to_tell() -> None:
    bench = Bench()
    bench.usage.add(TaskResult({}))
    await bench.usage.tell(now=True)
    assert bench.kept == []


async def test_what_was_not_heard_is_told_again() -> None:
    bench = Bench()
    bench.usage.add(TaskResult(b"", Usage(1)))
    bench.now_s += TELL_S
    bench.deaf = 1
    await bench.usage.tell()
    await bench.usage.tell()
    assert bench.kept == [], "not before its time"
    bench.now_s += TELL_S
    await bench.usage.tell()
    await bench.usage.tell(now=True)
    assert bench.kept == [RunUsage(1)]


async def test_the_last_word_has_more_than_one_try() -> None:
    bench = Bench()
    bench.usage.add(TaskResult(b"", Usage(1)))
    bench.deaf = 1
    await bench.usage.tell(now=True)
    assert bench.kept == [RunUsage(1)]


async def test_a_write_that_was_cut_off_is_made_good() -> None:
    bench = Bench()
    bench.usage.add(TaskResult(b"", Usage(1)))
    bench.now_s += TELL_S
    telling = asyncio.create_task(bench.usage.tell())
    await asyncio.sleep(0)
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    assert bench.kept == []
    await bench.usage.tell(now=True)
    assert bench.kept == [RunUsage(1)]
