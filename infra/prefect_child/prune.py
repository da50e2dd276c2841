"""Retention: what is over and too old, or too many, goes, every ten minutes and a little at a time.

SQLite keeps the pages of deleted rows and fills them again: its file stays as large as it ever was and grows no
further. (Shrinking it would take a VACUUM, which locks everybody out for minutes.)
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

from infra.blobs import Blobs
from infra.clock import Clock, monotonic
from infra.errors import CoderAIError
from infra.prefect_child.payloads import Mode
from infra.recorder_status import SET_ASIDE_FILE
from infra.run_files import RunFiles

log = logging.getLogger("infra.prefect_child.prune")

EVERY_S: Final = 600.0
FIRST_S: Final = 60.0
"""After the start there is enough to do."""
CHUNK_RUNS: Final = 50
"""In one transaction: SQLite has one write lock, and nobody is to wait for it long."""
_LEAST_PAUSE_S: Final = 0.02
_DAY_S: Final = 86_400.0
PAYLOADS_BYTES: Final = 8 << 30
JOBS_BYTES: Final = 32 << 30
"""What the two stores of blobs may take; over it the oldest go before their time."""
_SPOOL_LEFTOVERS: Final = ("*.torn", SET_ASIDE_FILE)


class Rows(Protocol):
    """Where runs are kept (`prune_rows.RunRows`)."""

    async def count(self) -> int:
        """How many runs are over."""

    async def which_are_over(self, runs: Sequence[UUID]) -> set[UUID]:
        """Those of `runs` that are here and over."""

    async def delete_oldest(self, limit: int, ended_before: datetime | None = None) -> list[UUID]:
        """Delete at most `limit` of them, with their child runs; returns the ids of all that went."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long runs are kept, how many, and whose requests (`record.payloads`)."""

    keep_days: float
    keep_runs: int
    payloads: Mode

    @property
    def keep_s(self) -> float:
        """How long a run is kept."""
        return self.keep_days * _DAY_S

    @property
    def payload_s(self) -> float:
        """How long a request is kept."""
        return self.keep_s if self.payloads == "all" else min(self.keep_s, _DAY_S)


class Pruner:
    """Prunes the runs in `rows` and what lies about them in `home`."""

    def __init__(self, rows: Rows, home: Path, limits: Limits, clock: Clock = monotonic) -> None:
        self._rows = rows
        self._limits = limits
        self._clock = clock
        self._spool = home / "spool"
        self._payloads = Blobs(home / "payloads")
        self._jobs = Blobs(home / "jobs")
        self._files = RunFiles(home)

    async def run_forever(self) -> None:
        """Prune now and then until cancelled. A failure is logged; the next round is another chance."""
        await asyncio.sleep(FIRST_S)
        while True:
            try:
                await self.prune()
            except (CoderAIError, OSError) as error:
                log.warning("old runs could not be pruned: %s", error)
            await asyncio.sleep(EVERY_S)

    async def prune(self) -> int:
        """One round; returns how many runs went.

        Raises:
            CoderAIError: the database does not answer.
            OSError: a folder cannot be read.
        """
        await asyncio.to_thread(self._prune_files)
        removed = await self._prune_old()
        removed += await self._prune_surplus()
        await self._prune_steps()
        if removed:
            log.info("%d runs pruned", removed)
        return removed

    async def _prune_old(self) -> int:
        removed, before = 0, datetime.now(UTC) - timedelta(seconds=self._limits.keep_s)
        while gone := await self._prune_chunk(CHUNK_RUNS, before):
            removed += gone
        return removed

    async def _prune_surplus(self) -> int:
        removed, surplus = 0, await self._rows.count() - self._limits.keep_runs
        while removed < surplus:
            gone = await self._prune_chunk(min(CHUNK_RUNS, surplus - removed), None)
            if not gone:
                break
            removed += gone
        return removed

    async def _prune_chunk(self, limit: int, before: datetime | None) -> int:
        """Delete a chunk, then leave the database to others for as long as that took."""
        started_s = self._clock()
        runs = await self._rows.delete_oldest(limit, before)
        if runs:
            await asyncio.to_thread(self._forget, runs)
            await asyncio.sleep(max(_LEAST_PAUSE_S, self._clock() - started_s))
        return len(runs)

    async def _prune_steps(self) -> None:
        """Results of steps come of requests and go with them; a run that is not over may still need its own."""
        if self._limits.payloads == "all":
            return
        idle = await asyncio.to_thread(self._files.idle, self._limits.payload_s)
        over = await self._rows.which_are_over([UUID(run) for run in idle])
        await asyncio.to_thread(self._forget_steps, over)

    def _forget_steps(self, runs: set[UUID]) -> None:
        for run in runs:
            self._files.forget_steps(str(run))

    def _forget(self, runs: list[UUID]) -> None:
        for run in runs:
            self._files.forget(str(run))

    def _prune_files(self) -> None:
        """Files by their age alone. What a run that lasts has kept is a day older before it goes."""
        limits = self._limits
        self._payloads.prune(limits.payload_s, PAYLOADS_BYTES)
        self._jobs.prune(limits.keep_s + _DAY_S, JOBS_BYTES)
        self._files.prune(limits.keep_s + _DAY_S)
        limit = time.time() - limits.payload_s
        for pattern in _SPOOL_LEFTOVERS:
            for path in self._spool.glob(pattern):
                if path.stat(follow_symlinks=False).st_mtime < limit:
                    path.unlink(missing_ok=True)
