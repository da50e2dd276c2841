"""Prefect's ids for our names: flows and their deployments, pools and their default queues."""

import logging
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from prefect.server.database import PrefectDBInterface

from infra.clock import Clock, monotonic
from infra.prefect_child.batch import NotReady
from infra.prefect_child.rows import Place
from infra.types import HEAD_POOL

log = logging.getLogger("infra.prefect_child.lookup")

FRESH_S = 10.0
"""How long an answer is believed; a deployment is made once in the life of an install."""
PATIENCE_S = 120.0
"""How long runs wait for the deployment of their flow, which the worker process makes at its start."""
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Named:
    """Something of Prefect's, as an event names it."""

    id: UUID
    name: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Queue:
    """The default queue of a pool."""

    queue: Named
    pool: Named
    pool_type: str


@dataclass(slots=True)
class Snapshot:
    """All that runs are placed by, read at one time."""

    flows: dict[str, Named] = field(default_factory=dict)
    deployments: dict[str, Named] = field(default_factory=dict)
    """By the name of their flow, which is theirs, too."""
    queues: dict[str, Queue] = field(default_factory=dict)
    """By the name of their pool."""
    read_at: float = float("-inf")

    def queue_of(self, pool: str | None) -> Queue | None:
        """The queue for a run that `pool` served: the pool's own, else the head's. A far service has no pool here."""
        return self.queues.get(pool or HEAD_POOL) or self.queues.get(HEAD_POOL)


class Places:
    """Answers from a snapshot that is read anew every `FRESH_S`, or when something is missing in it.

    With `patience_s` None a run needs no deployment.
    """

    def __init__(
        self, db: PrefectDBInterface, *, clock: Clock = monotonic, patience_s: float | None = PATIENCE_S
    ) -> None:
        self._db = db
        self._clock = clock
        self._patience_s = patience_s
        self._missed_since: dict[str, float] = {}
        self.snapshot = Snapshot()

    def forget(self) -> None:
        """Read again before the next answer: an id has turned out to be gone."""
        self.snapshot = Snapshot()

    async def prepare(self, flows: set[str], pools: set[str]) -> None:
        """See to it that `place` can answer for these flows, as it is now with these pools.

        Raises:
            NotReady: a flow has no deployment yet, and has been waited for no longer than `PATIENCE_S`.
        """
        now = self._clock()
        complete = flows <= self.snapshot.deployments.keys() and pools <= self.snapshot.queues.keys()
        if now - self.snapshot.read_at > (FRESH_S if complete else _AGAIN_S):
            self.snapshot = await self._read()
        missing = flows - self.snapshot.deployments.keys()
        for flow in flows - missing:
            self._missed_since.pop(flow, None)
        for flow in sorted(missing):
            self._be_patient(flow, now)
        if unknown := missing - self.snapshot.flows.keys():
            await self._make_flows(unknown)
            self.snapshot = await self._read()

    def place(self, flow: str, pool: str | None) -> Place:
        """Where a run of `flow` belongs whose first step ran on `pool`."""
        deployment = self.snapshot.deployments.get(flow)
        found = self.snapshot.queue_of(pool)
        queue = None if found is None else found.queue
        return Place(
            flow_id=self.snapshot.flows[flow].id,
            deployment_id=None if deployment is None else deployment.id,
            queue_id=None if queue is None else queue.id,
            queue_name=None if queue is None else queue.name,
        )

    def _be_patient(self, flow: str, now: float) -> None:
        if self._patience_s is None:
            return
        since = self._missed_since.setdefault(flow, now)
        if now - since < self._patience_s:
            raise NotReady(f"the deployment {flow!r} does not exist yet; the worker process makes it at its start")
        if since != float("-inf"):
            log.warning("runs of %r are recorded without a deployment, and cannot be retried: it does not exist", flow)
            self._missed_since[flow] = float("-inf")

    async def _make_flows(self, names: set[str]) -> None:
        table: Any = self._db.Flow.__table__  # Core: the ORM's own inserts cost several times as much
        insert = self._db.queries.insert(table).on_conflict_do_nothing()
        async with self._db.session_context(begin_transaction=True) as session:
            await session.execute(insert, [{"name": name, "tags": [], "labels": {}} for name in sorted(names)])

    async def _read(self) -> Snapshot:
        db = self._db
        flows = sa.select(db.Flow.id, db.Flow.name, db.Flow.tags)
        deployments = (
            sa.select(db.Deployment.id, db.Deployment.name, db.Deployment.tags)
            .join(db.Flow, db.Flow.id == db.Deployment.flow_id)
            .where(db.Flow.name == db.Deployment.name)
        )
        queues = sa.select(db.WorkQueue.id, db.WorkQueue.name, db.WorkPool.id, db.WorkPool.name, db.WorkPool.type).join(
            db.WorkPool, db.WorkPool.default_queue_id == db.WorkQueue.id
        )
        read = Snapshot(read_at=self._clock())
        async with db.session_context() as session:
            for row in await session.execute(flows):
                read.flows[row[1]] = Named(row[0], row[1], tuple(row[2]))
            for row in await session.execute(deployments):
                read.deployments[row[1]] = Named(row[0], row[1], tuple(row[2]))
            for queue, queue_name, pool, pool_name, pool_type in await session.execute(queues):
                read.queues[pool_name] = Queue(Named(queue, queue_name), Named(pool, pool_name), pool_type)
        return read
