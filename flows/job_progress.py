"""How far a job is: looked at now and then while it runs, and told to whoever shows it.

Knows nothing of Prefect: `flows/jobs.py` says who is told.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from flows.job_steps import JobNotes
from flows.job_usage import JobUsage
from flows.progress import in_words, peers_of, sum_up, usual_of
from infra.clock import wall
from workers.progress import ProgressLooks

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
"""Seconds between two looks."""

Tell = Callable[[float, str], Awaitable[None]]
"""Hears how many per cent are done, and a line for a person; must not raise."""


@dataclass(slots=True)
class JobWatch:
    """The looks at one job."""

    notes: JobNotes
    usage: JobUsage
    looks: ProgressLooks
    tell: Tell
    _usual: float = 0.0
    _told: str = ""

    async def keep(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()
            await self.usage.tell()

    async def look(self) -> None:
        """Tell what is new. An engine that cannot say how far it is has nothing to tell."""
        record = self.notes.recorder.record
        working = [one for one in await self.looks.at(self.notes.engines()) if one.run == record.id]
        if not working:
            return
        self._usual = usual_of(working) or self._usual
        progress = sum_up(working, peers_of(record, self._usual), wall() - record.started_at)
        words = in_words(progress)
        if words != self._told:
            self._told = words
            await self.tell(progress.pct, words)

    async def finish(self) -> None:
        """All is done: say so where there was something to say before."""
        if self._told:
            await self.tell(100.0, "done")


@asynccontextmanager
async def watched(watch: JobWatch) -> AsyncIterator[None]:
    """Look for as long as the job runs; at a good end all is done."""
    task = asyncio.create_task(watch.keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            log.error("the looks at a job have ended", exc_info=task.exception())
    await watch.finish()
