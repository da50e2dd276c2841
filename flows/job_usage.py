"""What a job has used, kept up to date while it runs, and over all its executions.

Knows nothing of Prefect: `flows/jobs.py` says where it is kept. What keys are charged is counted by the front, which
hears of each step when its lease ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from infra.clock import Clock, monotonic
from infra.run_usage import RunUsage
from tasks.types import TaskResult

TELL_S: Final = 10.0
"""Seconds between two words while the job runs: that much of the sum is lost with a process that is killed."""

_AGAIN_S: Final = (0.2, 0.6)
"""Pauses before the last word is tried again: a process that ends has four seconds for everything."""

Keep = Callable[[RunUsage], Awaitable[bool]]
"""Keeps the sum; must not raise. Whether it is kept."""


class JobUsage:
    """The sum over a run's steps; `before` is what its earlier executions have used."""

    def __init__(self, before: RunUsage | None, keep: Keep, *, clock: Clock = monotonic) -> None:
        self._sum = self._kept = before
        self._keep = keep
        self._clock = clock
        self._told_s = clock()

    def add(self, result: TaskResult) -> None:
        """A step has its result."""
        if result.usage is not None or result.units:
            tokens = result.usage._asdict() if result.usage is not None else {}
            self._sum = (self._sum or RunUsage()) + RunUsage(**tokens, units=result.units)

    async def tell(self, *, now: bool = False) -> None:
        """Keep the sum if it has grown: at most every `TELL_S`, or at once, and then with more than one try."""
        if self._sum is None or self._sum == self._kept or (not now and self._clock() - self._told_s < TELL_S):
            return
        if await self._told(self._sum) or not now:
            return
        for pause_s in _AGAIN_S:
            await asyncio.sleep(pause_s)
            if await self._told(self._sum):
                return

    async def _told(self, whole: RunUsage) -> bool:
        self._told_s = self._clock()
        kept = await self._keep(whole)
        if kept:
            self._kept = whole
        return kept
