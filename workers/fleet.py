"""The set of engines and the only ledger of their slots: who runs where, who waits, who is told to come back later.

Runs on the front's loop and nowhere else; the router decides, the fleet does.
"""

import asyncio
from collections.abc import Awaitable, Callable

from infra.clock import Clock, monotonic
from infra.errors import EngineFailed, ModelLoading, NoCapacity, NoRoom, Nowhere, QueueFull
from infra.settings import ServerSettings
from infra.types import EngineId, ModelName, PoolId
from workers.affinity import Affinity
from workers.bounds import POOL_PAUSED, Bounds
from workers.lines import SlotLine
from workers.live import Engine, Lease
from workers.loading import load_failed, load_outcome
from workers.pools.card import CardPool
from workers.pools.service import ServiceChecks, service_engine
from workers.residents import Residents
from workers.router import place
from workers.types import Demand, ModelEntry, ModelFormat, Placement, PoolView, Snapshot

Tried = frozenset[tuple[EngineId, int]]
NOT_TRIED: Tried = frozenset()


class Fleet:
    """Gives leases. `needed_bytes` tells how much memory a model's load will take."""

    def __init__(
        self,
        pools: dict[PoolId, CardPool],
        residents: Residents,
        checks: ServiceChecks,
        settings: ServerSettings,
        needed_bytes: Callable[[ModelEntry], Awaitable[int]],
        *,
        clock: Clock = monotonic,
    ) -> None:
        self.affinity = Affinity(clock=clock)
        self.draining = False
        """The install is shutting down: nothing new is begun, what has begun still gets its slots."""
        self.residents = residents
        self.current: Callable[[ModelEntry], ModelEntry] = lambda entry: entry
        """The entry of now for one of a moment ago. Raises ModelNotFound when the model has gone."""
        self._pools = pools
        self._checks = checks
        self._settings = settings
        self._needed_bytes = needed_bytes
        self._clock = clock
        self._services: dict[ModelName, Engine] = {}
        self._lines: dict[ModelName, SlotLine] = {}
        self.bounds = Bounds(pools, self._lines, self.engines)
        for pool in pools.values():
            pool.changed = self.bounds.settle
        residents.changed = self._on_change

    def adopt(self, find: Callable[[ModelName], ModelEntry | None]) -> None:
        """Take over the engines of the front before this one, but none whose model has changed meanwhile."""
        self.residents.adopt()
        for engine in list(self.residents.engines.values()):
            if find(engine.model) != engine.entry:
                self.forget(engine.model)

    async def acquire(self, demand: Demand, entry: ModelEntry, tried: Tried = NOT_TRIED) -> Lease:
        """A slot for the step, waiting for one where that is allowed.

        Raises:
            QueueFull, ModelLoading, NoRoom, NoCapacity: not now; `retry_after_s` says when.
            Nowhere: not before somebody has changed something.
            LoadFailed, ServiceDown, EngineFailed: the model cannot be had.
            ModelNotFound: it was removed while the request waited.
        """
        started_s = self._clock()
        if tried:
            entry = self.current(entry)
        if entry.format is ModelFormat.SERVICE and not self._checks.alive(service := self._service(entry)):
            await self._checks.ensure(service)
            entry = self.current(entry)
        while True:
            if self.bounds.closed is not None:
                raise NoCapacity(self.bounds.closed, retry_after_s=10, code=POOL_PAUSED)
            placement = self._resident(demand, entry, tried) or await self._on_a_card(demand, entry, tried)
            if placement.action == "use" and placement.engine is not None:
                engine = self._engine(entry, placement.engine)
                engine.in_flight += 1
                return self._lease(engine, placement, started_s, demand)
            handed = await self._wait(placement, entry, started_s, patient=demand.patient)
            if handed is not None:
                return self._lease(handed, placement, started_s, demand)
            entry = self.current(entry)

    async def preview(self, demand: Demand, entry: ModelEntry) -> Placement:
        """Where the step would go now; nothing is loaded or taken."""
        if self.bounds.closed is not None:
            return Placement("none", None, None, self.bounds.closed)
        return await self._decide(demand, entry, NOT_TRIED)

    async def load(self, entry: ModelEntry) -> Engine:
        """Load the model as a request would, and wait for it as long as it takes.

        Raises:
            NoRoom, LoadFailed: it cannot be loaded.
        """
        if entry.format is ModelFormat.SERVICE:
            engine = self._service(entry)
            await self._checks.ensure(engine)
            return engine
        for engine in self.residents.of(entry.name):
            if engine.state == "quarantined":
                await self.residents.unload(engine)
        placement = await self._decide(Demand(entry.name, entry.capabilities[0]), entry, NOT_TRIED)
        if placement.action in ("load", "wait_load") and placement.pool is not None:
            task = await self._task(entry, placement.pool)
            await load_outcome(task)
        elif placement.action == "none":
            raise NoRoom(placement.reason, retry_after_s=10)
        engines = self.residents.of(entry.name)
        if not engines:
            raise NoRoom(f"model '{entry.name}' was unloaded while it was loaded; load it again")
        return engines[0]

    async def unload(self, model: ModelName, *, wait_idle: bool = True) -> int:
        """Take the model out of memory everywhere; with `wait_idle` a busy engine refuses. Returns how many went.

        Raises:
            NoRoom: it is answering requests.
        """
        engines = self.residents.of(model)
        busy = sum(engine.in_flight for engine in engines)
        if busy and wait_idle:
            raise NoRoom(f"model '{model}' is answering {busy} requests; unload it when they are done", retry_after_s=5)
        await asyncio.gather(*(self.residents.unload(engine) for engine in engines))
        return len(engines)

    def forget(self, model: ModelName) -> None:
        """The catalogue's entry has changed or gone: nobody new is sent to its engines; what runs there may finish."""
        service = self._services.pop(model, None)
        if service is not None:
            service.state = "down"
            self.bounds.parts(service)
            self._line(model).look_again()
        for engine in self.residents.of(model):
            self.residents.unload(engine, when_idle=True)

    def has_choice(self, entry: ModelEntry) -> bool:
        """Whether the model could be in several places, so that a conversation's place matters."""
        return len(self._pools) > 1 and entry.format is not ModelFormat.SERVICE and entry.engine is None

    def engines(self) -> list[Engine]:
        """Every engine, local first."""
        return [*self.residents.engines.values(), *self._services.values()]

    def pools(self) -> tuple[PoolView, ...]:
        """Every card as the router sees it."""
        return tuple(pool.view(self.residents.reclaimable_bytes(pool.id)) for pool in self._pools.values())

    def waiting(self, model: ModelName) -> int:
        """Requests that wait for a slot of the model."""
        return len(self._lines.get(model, ()))

    async def _wait(self, placement: Placement, entry: ModelEntry, started_s: float, *, patient: bool) -> Engine | None:
        """Wait for a slot that is handed over, or for what has to come first; None means: decide again."""
        if placement.action == "queue":
            left_s = started_s + self._settings.queue_wait_s - self._clock()
            return await self._line(entry.name).wait(entry, left_s, patient=patient)
        if placement.action == "none":
            if placement.lasting:
                raise Nowhere(placement.reason, retry_after_s=10)
            paused = {pool.paused for pool in self._pools.values()}
            held = any(over.reason in paused for over in placement.passed_over)
            raise NoRoom(placement.reason, retry_after_s=10, code=POOL_PAUSED if held else None)
        await self._wait_loaded(entry, placement, started_s)
        return None

    def _line(self, model: ModelName) -> SlotLine:
        line = self._lines.get(model)
        if line is None:
            line = self._lines[model] = SlotLine(self._pass_on)
        return line

    async def _decide(self, demand: Demand, entry: ModelEntry, tried: Tried) -> Placement:
        return self._resident(demand, entry, tried) or await self._on_a_card(demand, entry, tried)

    async def _on_a_card(self, demand: Demand, entry: ModelEntry, tried: Tried) -> Placement:
        """The placement where no resident engine will do (not loaded, tried, paused, pinned away)."""
        needed_bytes = await self._needed_bytes(entry)
        snapshot = Snapshot(self.pools() + self.bounds.unusable, self.bounds.views(self._of(entry)))
        return place(demand, entry, snapshot, needed_bytes=needed_bytes, tried=tried)

    def _resident(self, demand: Demand, entry: ModelEntry, tried: Tried) -> Placement | None:
        """The placement on an engine that holds the model, without waiting for anything; None if there is none."""
        engines = self._of(entry)
        if entry.format is not ModelFormat.SERVICE and "ready" not in [engine.state for engine in engines]:
            return None
        warm = self._warm(demand, entry, engines) if demand.affinity_key else None
        placement = place(demand, entry, Snapshot((), self.bounds.views(engines)), warm=warm, tried=tried)
        settled = placement.action in ("use", "queue") or entry.format is ModelFormat.SERVICE
        return placement if settled else None

    def _warm(self, demand: Demand, entry: ModelEntry, engines: list[Engine]) -> EngineId | None:
        """The engine that still holds the conversation."""
        warm = self.affinity.warm(entry.name, demand.affinity_key or "")
        held = any(warm == (engine.id, engine.incarnation) for engine in engines)
        return warm[0] if warm is not None and held else None

    def _of(self, entry: ModelEntry) -> list[Engine]:
        if entry.format is ModelFormat.SERVICE:
            return [self._service(entry)]
        return self.residents.of(entry.name)

    def _service(self, entry: ModelEntry) -> Engine:
        engine = self._services.get(entry.name)
        if engine is None:
            engine = self._services[entry.name] = service_engine(self.current(entry))
        return engine

    def _engine(self, entry: ModelEntry, engine: EngineId) -> Engine:
        return self._services[entry.name] if entry.format is ModelFormat.SERVICE else self.residents.engines[engine]

    def _lease(self, engine: Engine, placement: Placement, started_s: float, demand: Demand) -> Lease:
        now_s = self._clock()
        engine.last_used_s = now_s
        if demand.affinity_key:
            self.affinity.note(engine.entry.name, demand.affinity_key, engine.id, engine.incarnation)
        return Lease(engine, engine.incarnation, engine.epoch, placement, now_s - started_s, now_s, self._give_back)

    def _give_back(self, lease: Lease) -> None:
        engine = lease.engine
        now_s = self._clock()
        if lease.failed:
            self._doubt(engine)
        if engine.epoch != lease.epoch:
            return
        line = self._line(engine.entry.name)
        line.served(now_s - lease.taken_s)
        engine.last_used_s = now_s
        self._pass_on(line, engine)

    def _pass_on(self, line: SlotLine, engine: Engine) -> None:
        """A taken slot is not needed any more."""
        if self.bounds.active:
            engine.in_flight -= 1
            self.bounds.serve()
        else:
            line.next_or_free(engine)

    def _doubt(self, engine: Engine) -> None:
        """It failed a step: it is asked for its health before it gets another."""
        if engine.local:
            self.residents.doubt(engine)
        else:
            self._checks.forget(engine)

    async def _wait_loaded(self, entry: ModelEntry, placement: Placement, started_s: float) -> None:
        """Wait for the load for as long as a cold request may; the load goes on whatever becomes of the request."""
        line = self._line(entry.name)
        if line.for_load >= entry.queue_max_waiting + entry.max_instances:
            raise QueueFull(
                f"model '{entry.name}' is loading and {line.for_load} requests wait for it", retry_after_s=5
            )
        if placement.pool is None:
            raise EngineFailed(placement.reason)
        task = await self._task(entry, placement.pool)
        left_s = started_s + self._settings.cold_wait_s - self._clock()
        line.for_load += 1
        try:
            if task is None:
                await asyncio.sleep(min(0.1, max(0.0, left_s)))
            else:
                await asyncio.wait({task}, timeout=max(0.0, left_s))
        finally:
            line.for_load -= 1
        if task is not None and load_failed(task) and not self.residents.of(entry.name):
            task.result()  # nothing is left that could come back by itself
        if self._clock() - started_s >= self._settings.cold_wait_s:
            progress = next((engine.reason for engine in self.residents.of(entry.name)), "")
            raise ModelLoading(
                f"model '{entry.name}' is not ready yet ({progress or 'loading'}); the load goes on, try again",
                retry_after_s=10,
            )

    async def _task(self, entry: ModelEntry, pool: PoolId) -> asyncio.Task[None] | None:
        """The load under way there, begun if there is none; None while a crashed engine waits for its restart."""
        for engine in self.residents.of(entry.name):
            if engine.pool == pool:
                return self.residents.load_of(engine.id)
        needed_bytes = await self._needed_bytes(entry)
        return self.residents.load(self.current(entry), pool, needed_bytes)

    def _on_change(self, engine: Engine) -> None:
        """An engine came or went: waiters get its slots, or look for another."""
        if engine.state == "down":
            self.bounds.parts(engine)
        if engine.state != "ready" and not any(other.state == "ready" for other in self._of(engine.entry)):
            self._line(engine.entry.name).look_again()
        self.bounds.serve()
