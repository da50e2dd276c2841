"""From a launch to an engine that answers: start the child, wait for its health, say why it did not come."""

import asyncio

from infra.clock import Clock, monotonic
from infra.errors import LoadFailed, NotInstalled
from infra.settings import LlamaSettings
from infra.supervisor.types import Children, ChildSpec, ChildState
from workers.engine.flags import read_flags
from workers.engine.programs import program
from workers.engine.provider import load_deadline_s, load_failure
from workers.live import Engine
from workers.transport import Transport
from workers.types import ModelFormat
from workers.wire import NOT_INSTALLED, EngineLaunch

_POLL_S = 0.1
_HEALTH_TIMEOUT_S = 2.0


class Loader:
    """Starts and stops engine processes through the supervisor."""

    def __init__(
        self,
        children: Children,
        transport: Transport,
        settings: LlamaSettings,
        engine_key: str,
        *,
        clock: Clock = monotonic,
    ) -> None:
        self._children = children
        self._transport = transport
        self._settings = settings
        self._engine_key = engine_key
        self._clock = clock
        self._known_flags: frozenset[str] = frozenset()

    async def load(self, engine: Engine, launch: EngineLaunch) -> None:
        """Start the engine's process and wait until it serves.

        Raises:
            LoadFailed: it ended, was quarantined or passed its deadline; the process is gone by then.
            NotInstalled: the configured llama-server cannot be run, or a library that the model needs is missing.
        """
        state = await self._children.start(await self._spec(launch))
        try:
            await self.wait_ready(engine, state.incarnation)
        except (LoadFailed, NotInstalled, asyncio.CancelledError):
            await asyncio.shield(self._children.stop(engine.id))
            raise

    async def wait_ready(self, engine: Engine, incarnation: int) -> None:
        """Wait until that incarnation of the child answers its health check; point the engine at it.

        Raises:
            LoadFailed: the process ended, or the deadline, which grows with the weights, has passed.
            NotInstalled: it ended for want of a library.
        """
        started_s = self._clock()
        deadline_s = load_deadline_s(engine.entry.weights_bytes, self._settings)
        while True:
            state = self._children.states().get(engine.id)
            if state is None or state.incarnation != incarnation or state.status != "running":
                raise _failed(engine, _why(state))
            health = await self._transport.alive(f"http://127.0.0.1:{state.port}/health", {}, _HEALTH_TIMEOUT_S)
            if health == 200:
                await self._point(engine, state)
                return
            elapsed_s = self._clock() - started_s
            if elapsed_s > deadline_s:
                raise LoadFailed(
                    f"model '{engine.model}' was not ready on {engine.pool} after {deadline_s:.0f} s: {_why(state)}"
                )
            engine.reason = f"loading for {elapsed_s:.0f} s of at most {deadline_s:.0f} s"
            await asyncio.sleep(_POLL_S)

    async def _spec(self, launch: EngineLaunch) -> ChildSpec:
        """The process to start; a llama-server of the user's own is asked once what flags it knows."""
        own = self._settings.server_bin if launch.entry.format is ModelFormat.GGUF else None
        if own is not None and not self._known_flags:
            self._known_flags = await read_flags(own)
        return program(launch, self._settings, self._engine_key, self._known_flags)

    async def unload(self, engine: Engine) -> None:
        """End the engine's process; return when it is gone."""
        await self._children.stop(engine.id)

    async def _point(self, engine: Engine, state: ChildState) -> None:
        engine.base_url = f"http://127.0.0.1:{state.port}/v1"
        engine.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._engine_key}"}
        engine.props = await self._transport.get_object(f"http://127.0.0.1:{state.port}/props", engine.headers)
        engine.incarnation = state.incarnation
        engine.state, engine.reason = "ready", ""


def _failed(engine: Engine, why: str) -> LoadFailed | NotInstalled:
    """The error for a process that ended."""
    if why.startswith(NOT_INSTALLED):
        return NotInstalled(f"model '{engine.model}' cannot be loaded: {why.removeprefix(NOT_INSTALLED)}")
    return LoadFailed(f"model '{engine.model}' could not be loaded on {engine.pool}: {why}")


def _why(state: ChildState | None) -> str:
    """The runtime's own words."""
    if state is None:
        return "its process is gone"
    return load_failure(state.log_tail, state.reason or "it said nothing")


async def load_outcome(task: asyncio.Task[None] | None) -> None:
    """Wait for a load, which goes on if the waiting is called off; raises what it raised, but not its own end."""
    if task is not None:
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


def load_failed(task: asyncio.Task[None]) -> bool:
    """Whether a load has ended with an error."""
    return task.done() and not task.cancelled() and task.exception() is not None
