"""All workers of the install in one process: one a pool, each fetching its runs when it is nudged, and now and then."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import httpx

from infra.types import PoolId
from workers.jobs.leftovers import worker_name
from workers.jobs.live import End
from workers.jobs.pools import Served
from workers.jobs.worker import BEAT_S, CardWorker, Desk, HeadWorker
from workers.pools.orders import HEAD_TYPE

log = logging.getLogger(__name__)

FETCH_S: Final = 15.0
"""Seconds between looks for runs that no event announced."""
MOST_JOBS: Final = {HEAD_TYPE: 16}
"""Jobs of one worker at once; most of them wait for a slot, which the front gives."""
_MOST_JOBS: Final = 8


@dataclass(slots=True, eq=False)
class Member:
    """One worker, and what keeps it going."""

    served: Served
    worker: HeadWorker
    nudged: asyncio.Event = field(default_factory=asyncio.Event)
    keeper: asyncio.Task[None] | None = None

    async def keep(self) -> None:
        """Work, until cancelled. What Prefect does not answer now it is asked again later."""
        async with self.worker:
            beating = asyncio.create_task(self._beat(), name=f"heartbeat of {self.worker.name}")
            try:
                while True:
                    self.nudged.clear()
                    await self._fetch()
                    await either(self.nudged, FETCH_S)
            finally:
                beating.cancel()

    async def _fetch(self) -> None:
        try:
            await self.worker.get_and_submit_flow_runs()
        except httpx.HTTPError as error:
            log.info("%s could not look for runs: %s", self.worker.name, error or type(error).__name__)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await self.worker.sync_with_backend()
            except httpx.HTTPError as error:
                log.info("%s could not say that it lives: %s", self.worker.name, error or type(error).__name__)


class Crew:
    """The workers by pool."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._members: dict[PoolId, Member] = {}

    @property
    def pools(self) -> tuple[PoolId, ...]:
        """The pools that are served now."""
        return tuple(self._members)

    async def serve(self, wanted: Iterable[Served]) -> None:
        """Have a worker for each of these pools and for no others."""
        by_pool = {each.pool: each for each in wanted}
        for pool, member in list(self._members.items()):
            if by_pool.get(pool) != member.served or member.keeper is None or member.keeper.done():
                await self._dismiss(self._members.pop(pool))
        for pool, served in by_pool.items():
            if pool not in self._members:
                self._members[pool] = self._hire(served)

    def nudge(self, pool: UUID | None = None) -> None:
        """A run of this pool waits; None for all pools."""
        for member in self._members.values():
            known = member.worker.pool_id
            if pool is None or known is None or known == pool:
                member.nudged.set()

    def cancel(self, run: UUID, occurred_at: float) -> bool:
        """End a job. False if there is no such one, or it began after the wish for its end: look at its state, then."""
        job = self._desk.live.get(run)
        if job is None or job.started_at > occurred_at:
            return False
        job.stop("cancelled")
        return True

    async def stop(self, end: End, timeout_s: float) -> int:
        """End every job, and wait for their last words; returns how many were too slow."""
        for job in list(self._desk.live.values()):
            job.stop(end)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while self._desk.live and loop.time() < until_s:  # noqa: ASYNC110  # each leaves when its state is written
            await asyncio.sleep(0.02)
        return len(self._desk.live)

    async def close(self) -> None:
        """Let every worker go."""
        while self._members:
            await self._dismiss(self._members.popitem()[1])

    def _hire(self, served: Served) -> Member:
        kind = HeadWorker if served.type == HEAD_TYPE else CardWorker
        worker = kind(
            work_pool_name=served.pool,
            name=worker_name(served.pool),
            limit=MOST_JOBS.get(served.type, _MOST_JOBS),
            prefetch_seconds=FETCH_S,
            create_pool_if_not_found=False,
            heartbeat_interval_seconds=BEAT_S,
            desk=self._desk,
            device=served.device,
        )
        member = Member(served, worker)
        worker.freed = member.nudged.set
        member.keeper = asyncio.create_task(member.keep(), name=f"worker of {served.pool}")
        return member

    async def _dismiss(self, member: Member) -> None:
        keeper = member.keeper
        if keeper is None:
            return
        keeper.cancel()
        await asyncio.wait({keeper})
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            log.error("the worker of %s had broken off", member.served.pool, exc_info=error)


async def either(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the event, at most so long."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
