"""What a job has used, kept up to date while it runs, and over all its executions.

Knows nothing of Prefect: `flows/jobs.py` says where it is kept. What keys are charged is counted by the front, which
hears of each step when its lease ends.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from infra.clock import Clock, monotonic
from infra.run_usage import RunUsage
from tasks.types import TaskResult

TELL_S: Final = 10.0
"""Seconds between two words while the job runs: that much of the sum is lost with a process that is killed."""

Keep = Callable[[RunUsage], Awaitable[None]]
"""Keeps the sum; must not raise."""


class JobUsage:
    """The sum over a run's steps; `before` is what its earlier executions have used."""

    def __init__(self, before: RunUsage | None, keep: Keep, *, clock: Clock = monotonic) -> None:
        self._sum = self._kept = before
        self._keep = keep
        self._clock = clock
        self._kept_s = clock()

    def add(self, result: TaskResult) -> None:
        """A step has its result."""
        if result.usage is not None or result.units:
            tokens = result.usage._asdict() if result.usage is not None else {}
            self._sum = (self._sum or RunUsage()) + RunUsage(**tokens, units=result.units)

    async def tell(self, *, now: bool = False) -> None:
        """Keep the sum if it has grown, at most every `TELL_S` or at once."""
        if self._sum is None or self._sum == self._kept or (not now and self._clock() - self._kept_s < TELL_S):
            return
        self._kept, self._kept_s = self._sum, self._clock()
        await self._keep(self._sum)
