"""Local models in memory: loading, making room, coming back after a crash, being found again by a restarted front."""

import asyncio
import logging
from collections.abc import Callable

from pydantic import ValidationError

from infra.clock import Clock, monotonic
from infra.errors import CoderAIError, LoadFailed, NoRoom, NotInstalled
from infra.settings import LlamaSettings
from infra.supervisor.types import Children, ChildState
from infra.types import EngineId, ModelName, PoolId
from workers.live import Engine
from workers.loading import Loader
from workers.pools.card import CardPool
from workers.types import ModelEntry
from workers.wire import EngineLaunch

log = logging.getLogger("workers.residents")

LET_FINISH_S = 600.0
"""How long requests on a model that is being replaced may go on."""
_POLL_S = 0.05


class Residents:
    """The local engines and the memory they hold. `changed` is called whenever an engine's state or place changes."""

    def __init__(
        self,
        pools: dict[PoolId, CardPool],
        loader: Loader,
        children: Children,
        settings: LlamaSettings,
        *,
        threads: int,
        clock: Clock = monotonic,
    ) -> None:
        self.engines: dict[EngineId, Engine] = {}
        self.changed: Callable[[Engine], None] = lambda _engine: None
        self._pools = pools
        self._loader = loader
        self._children = children
        self._settings = settings
        self._threads = threads
        self._clock = clock
        self._loads: dict[EngineId, asyncio.Task[None]] = {}
        self._first_loads: set[Engine] = set()
        self._leaving: dict[EngineId, asyncio.Task[None]] = {}

    def adopt(self) -> None:
        """Take over the engines that the supervisor kept running while there was no front."""
        self._children.subscribe(self._on_child)
        for state in self._children.states().values():
            if state.note is None or state.status == "stopped" or "/" not in state.name:
                continue  # none of ours: an engine is called POOL/MODEL
            try:
                launch = EngineLaunch.model_validate(state.note)
                pool = self._pools[launch.pool]
            except (ValidationError, KeyError):  # another version's, or on a card that is gone
                name = EngineId(state.name)
                self._leaving[name] = asyncio.ensure_future(self._children.stop(name))
                continue
            engine = _engine(launch.engine, launch.entry, launch.pool, launch.slots)
            self.engines[engine.id] = engine
            pool.reserved[engine.id] = engine.memory_bytes = launch.memory_bytes
            self._on_child(state)

    def of(self, model: ModelName) -> list[Engine]:
        """The engines that hold the model or are getting it."""
        return [engine for engine in self.engines.values() if engine.entry.name == model]

    def reclaimable_bytes(self, pool: PoolId) -> int:
        """What unloading every idle model of the pool would free, with what those that leave now will."""
        idle = sum(engine.memory_bytes for engine in self.engines.values() if engine.pool == pool and is_idle(engine))
        return idle + self._leaving_bytes(pool)

    def _leaving_bytes(self, pool: PoolId) -> int:
        """What is reserved for models whose processes are about to end. One that is back already has it as its own."""
        gone = [engine for engine in self._leaving if engine not in self.engines]
        return sum(self._pools[pool].reserved.get(engine, 0) for engine in gone)

    def load(self, entry: ModelEntry, pool_id: PoolId, needed_bytes: int) -> asyncio.Task[None]:
        """Begin to load the model there, or join the load that is under way; the task outlives whoever asked.

        Raises:
            NoRoom: not even unloading every idle model would make room; nothing was unloaded.
        """
        engine_id = EngineId(f"{pool_id}/{entry.name}")
        if engine_id in self.engines:
            return self._loads.get(engine_id) or asyncio.ensure_future(asyncio.sleep(0))
        pool = self._pools[pool_id]
        victims = self._victims(pool, engine_id, needed_bytes)
        engine = _engine(engine_id, entry, pool_id, entry.max_instances)
        engine.memory_bytes = needed_bytes
        for victim in victims:
            self.unload(victim)
        gone = [task for leaving, task in self._leaving.items() if leaving == engine_id or leaving in pool.reserved]
        self.engines[engine_id] = engine
        pool.reserved[engine_id] = needed_bytes
        pool.loading.add(engine_id)
        self._first_loads.add(engine)
        task = asyncio.ensure_future(self._bring(engine, pool, gone))
        self._track(engine_id, task)
        return task

    def doubt(self, engine: Engine) -> None:
        """It failed a step: it takes no more until it has answered its health check; a dead one restarts by itself."""
        if engine.state == "ready" and self.engines.get(engine.id) is engine:
            engine.state, engine.reason = "loading", "it failed a request; asking for its health"
            self._track(engine.id, asyncio.ensure_future(self._return(engine, engine.incarnation)))

    def load_of(self, engine: EngineId) -> asyncio.Task[None] | None:
        """The load or restart under way of that engine."""
        return self._loads.get(engine)

    def unload(self, engine: Engine, *, when_idle: bool = False) -> asyncio.Task[None]:
        """Take the model out of memory: at once out of sight, and out of the ledger when its process is gone.

        With `when_idle` the requests that run there may finish, within `LET_FINISH_S`.
        """
        if self.engines.get(engine.id) is not engine:
            return self._leaving.get(engine.id) or asyncio.ensure_future(asyncio.sleep(0))
        del self.engines[engine.id]
        engine.state, engine.reason = "down", "being unloaded"
        running = self._loads.pop(engine.id, None)
        if running is not None:
            running.cancel()
        before = self._leaving.get(engine.id)
        task = asyncio.ensure_future(self._leave(engine, LET_FINISH_S if when_idle else 0.0, before))
        self._leaving[engine.id] = task
        self.changed(engine)
        return task

    async def close(self) -> None:
        """Stop watching; the processes stay, they are the supervisor's."""
        for task in [*self._loads.values(), *self._leaving.values()]:
            task.cancel()
        await asyncio.gather(*self._loads.values(), *self._leaving.values(), return_exceptions=True)

    def _victims(self, pool: CardPool, wanted: EngineId, needed_bytes: int) -> list[Engine]:
        """Idle engines to unload, least recently used first, until the model fits; a busy one never."""
        free_bytes = pool.balance_bytes + self._leaving_bytes(pool.id)
        victims: list[Engine] = []
        idle = [engine for engine in self.engines.values() if engine.pool == pool.id and is_idle(engine)]
        for engine in sorted(idle, key=lambda engine: engine.last_used_s):
            if free_bytes >= needed_bytes:
                break
            victims.append(engine)
            free_bytes += engine.memory_bytes
        if free_bytes < needed_bytes:
            raise NoRoom(
                f"pool {pool.id} has no room: {needed_bytes / 2**30:.2f} GiB needed, {free_bytes / 2**30:.2f} GiB free"
                " after unloading every idle model; try again when running requests have finished",
                retry_after_s=10,
            )
        return victims

    async def _bring(self, engine: Engine, pool: CardPool, gone: list[asyncio.Task[None]]) -> None:
        started_s = self._clock()
        try:
            if gone:
                await asyncio.wait(gone)  # not awaited one by one: who calls this load off does not call them off
            launch = pool.launch(engine.id, engine.entry, self._settings, self._threads)
            await self._loader.load(engine, launch.model_copy(update={"memory_bytes": engine.memory_bytes}))
        except BaseException:
            if self.engines.get(engine.id) is engine:
                del self.engines[engine.id]
                pool.reserved.pop(engine.id, None)
                engine.state, engine.reason = "down", "could not be loaded"
            raise
        finally:
            self._first_loads.discard(engine)
            if self.engines.get(engine.id, engine) is engine:  # else the mark is its successor's
                pool.loading.discard(engine.id)
            self.changed(engine)
        engine.last_used_s = self._clock()
        log.info("loaded %s on %s in %.1f s", engine.model, engine.pool, self._clock() - started_s)

    async def _leave(self, engine: Engine, patience_s: float, before: asyncio.Task[None] | None) -> None:
        until_s = self._clock() + patience_s
        try:
            if before is not None:  # the process is its predecessor's still
                await asyncio.wait({before})
            while engine.in_flight and self._clock() < until_s:  # noqa: ASYNC110  # an event would cost every request
                await asyncio.sleep(_POLL_S)
            await self._loader.unload(engine)
        finally:
            if self._leaving.get(engine.id) is asyncio.current_task():
                del self._leaving[engine.id]
                if engine.id not in self.engines:  # else it is its successor's
                    self._pools[engine.pool].reserved.pop(engine.id, None)
        log.info("unloaded %s from %s", engine.model, engine.pool)

    def _on_child(self, state: ChildState) -> None:
        """An engine process of ours came, went or was given up."""
        engine = self.engines.get(EngineId(state.name))
        if engine is None or engine in self._first_loads or state.note is None:
            return
        if state.status == "running":
            if state.incarnation != engine.incarnation:
                self._lost(engine, "restarting" if engine.incarnation else "found again, not yet ready")
                engine.incarnation = state.incarnation
                self._track(engine.id, asyncio.ensure_future(self._return(engine, state.incarnation)))
        elif state.status == "backoff":
            self._lost(engine, f"restarting: {state.reason or 'its process ended'}")
        elif state.status == "quarantined":
            self._lost(engine, "given up")
            engine.state = "quarantined"
            engine.reason = f"given up after repeated crashes: {state.reason}; load it again to give it another chance"
        else:
            del self.engines[engine.id]
            self._pools[engine.pool].reserved.pop(engine.id, None)
            engine.state, engine.reason = "down", "stopped"
        self.changed(engine)

    def _lost(self, engine: Engine, reason: str) -> None:
        """Its process is gone: nothing runs there any more, whoever held a slot has failed or will."""
        if engine.state == "ready":
            log.warning("%s lost its process (%s)", engine.id, reason)
        engine.state, engine.reason = "loading", reason
        engine.in_flight, engine.epoch = 0, engine.epoch + 1

    async def _return(self, engine: Engine, incarnation: int) -> None:
        """A restarted process becomes an engine again. One that ended is followed by the child's next event; one that
        lives and never answers is ended, so that the next request loads the model anew."""
        try:
            await self._loader.wait_ready(engine, incarnation)
        except (LoadFailed, NotInstalled) as error:
            engine.reason = error.message
            state = self._children.states().get(engine.id)
            if state is not None and (state.status, state.incarnation) == ("running", incarnation):
                self._loads.pop(engine.id, None)  # this task, which `unload` would cancel
                self.unload(engine)
            raise
        log.info("%s is back", engine.id)
        self.changed(engine)

    def _track(self, engine_id: EngineId, task: asyncio.Task[None]) -> None:
        self._loads[engine_id] = task

        def finished(done: asyncio.Task[None]) -> None:
            if self._loads.get(engine_id) is done:
                del self._loads[engine_id]
            if done.cancelled():
                return
            error = done.exception()
            if isinstance(error, CoderAIError):
                log.warning("%s", error.message)
            elif error is not None:
                log.error("loading %s failed", engine_id, exc_info=error)

        task.add_done_callback(finished)


def _engine(engine_id: EngineId, entry: ModelEntry, pool: PoolId, slots: int) -> Engine:
    return Engine(id=engine_id, entry=entry, pool=pool, local=True, slots=slots)


def is_idle(engine: Engine) -> bool:
    """Whether it may be unloaded for another model: it does nothing, and need not stay."""
    if engine.state == "quarantined":
        return True
    return engine.state == "ready" and engine.in_flight == 0 and not engine.entry.keep_resident
