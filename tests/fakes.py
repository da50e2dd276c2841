"""Fakes of what stands around the front: a supervisor whose children are HTTP servers on this loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from infra.hardware.cards import Card
from infra.supervisor.types import ChildSpec, ChildState
from infra.types import PoolId
from tests.loopback import serve
from workers.pools.card import CardPool
from workers.types import Capability, ModelEntry, ModelFormat
from workers.wire import EngineLaunch

GIB = 2**30
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_entry(name: str = "m", **fields: object) -> ModelEntry:
    """A local chat model."""
    row: dict[str, object] = {
        "name": name,
        "format": ModelFormat.GGUF,
        "capabilities": (Capability.CHAT, Capability.COMPLETIONS),
        "path": Path("/weights") / f"{name}.gguf",
    }
    return ModelEntry.model_validate(row | fields)


def make_pool(name: str = "cpu", total_gib: float = 8, backend: str = "cpu") -> CardPool:
    """A card with nothing on it."""
    card = Card(PoolId(name), backend, name, None, int(total_gib * GIB))  # type: ignore[arg-type]
    return CardPool(card, reserve_bytes=0)


class FakeChildren:
    """`Children` whose processes are servers in this one: an engine demands its key, as the real ones do; the others
    (flow-run server, worker process) only answer the flow-run server's health check.

    `answer` handles every POST, `progress` tells what is worked on; `broken` names children that end at once, `frozen`
    those whose health check never answers; `slow_s` delays readiness.
    """

    def __init__(self, answer: Handler | None = None) -> None:
        self.answer: Handler = answer or _hello
        self.progress: Handler = _nothing
        self.broken: set[str] = set()
        self.frozen: set[str] = set()
        self.slow_s = 0.0
        self.last_words = "error: not a GGUF file"
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.specs: dict[str, ChildSpec] = {}
        self._states: dict[str, ChildState] = {}
        self._runners: dict[str, web.AppRunner] = {}
        self._spawning: dict[str, asyncio.Future[ChildState]] = {}
        self._ending: dict[str, asyncio.Future[None]] = {}
        self._listeners: list[Callable[[ChildState], None]] = []

    async def start(self, spec: ChildSpec) -> ChildState:
        """See `Children.start`."""
        running = self._states.get(spec.name)
        if running is not None and running.status != "stopped":
            return running
        self.started.append(spec.name)
        self.specs[spec.name] = spec
        spawning = self._spawning[spec.name] = asyncio.ensure_future(self._spawn(spec.name, incarnation=1))
        return await asyncio.shield(spawning)  # who asked may go: the child comes all the same

    async def stop(self, name: str) -> None:
        """See `Children.stop`."""
        if name in self._spawning and not self._spawning[name].done():
            await asyncio.wait([self._spawning[name]])
        if name in self._states:
            self.stopped.append(name)
            await self._close(name)
            state = self._states.pop(name, None)
            if state is not None:  # else another stop was quicker
                self._tell(state.model_copy(update={"status": "stopped", "pid": None, "port": None}))

    def states(self) -> dict[str, ChildState]:
        """See `Children.states`."""
        return dict(self._states)

    def subscribe(self, listener: Callable[[ChildState], None]) -> None:
        """See `Children.subscribe`."""
        self._listeners.append(listener)

    async def kill(self, name: str) -> None:
        """The process dies; the supervisor notices and backs off."""
        await self._close(name)
        self._set(self._states[name].model_copy(update={"status": "backoff", "pid": None, "reason": "killed"}))

    async def restart(self, name: str) -> None:
        """The backoff is over."""
        await self._spawn(name, self._states[name].incarnation + 1)

    def quarantine(self, name: str) -> None:
        """The supervisor gives it up."""
        self._set(self._states[name].model_copy(update={"status": "quarantined", "reason": "signal 6"}))

    async def close(self) -> None:
        """End every server."""
        await asyncio.gather(*self._spawning.values())
        for name in (*self._runners, *self._ending):
            await self._close(name)

    async def _spawn(self, name: str, incarnation: int) -> ChildState:
        spec = self.specs[name]
        if name in self.broken:
            state = ChildState(
                name=name,
                status="backoff",
                incarnation=incarnation,
                reason="exit code 1",
                log_tail=(self.last_words,),
                note=spec.note,
            )
            self._set(state)
            return state
        app = web.Application()
        app.router.add_get("/health", self._health_of(name))
        app.router.add_get("/flows/api/health", self._health_of(name))
        if "/" in name:
            guarded = self._guarded(spec.secret_env["LLAMA_API_KEY"])
            app.router.add_get("/v1/progress", guarded)
            app.router.add_post("/v1/{path:.*}", guarded)
        runner, _url = await serve(app)
        self._runners[name] = runner
        port = runner.addresses[0][1]
        state = ChildState(name=name, status="running", pid=1, port=port, incarnation=incarnation, note=spec.note)
        self._set(state)
        return state

    def _guarded(self, key: str) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if request.headers.get("Authorization") != f"Bearer {key}":
                return web.json_response({"error": {"message": "Invalid API Key", "code": 401}}, status=401)
            return await (self.answer if request.method == "POST" else self.progress)(request)

        return handle

    def _health_of(self, name: str) -> Handler:
        async def health(_request: web.Request) -> web.Response:
            if name in self.frozen:
                await asyncio.sleep(3600)
            if self.slow_s > 0:
                self.slow_s -= 0.1
                return web.json_response({"error": {"message": "Loading model"}}, status=503)
            return web.json_response({"status": "ok"})

        return health

    async def _close(self, name: str) -> None:
        runner = self._runners.pop(name, None)
        if runner is not None:
            self._ending[name] = asyncio.ensure_future(runner.cleanup())
        if name in self._ending:
            await asyncio.shield(self._ending[name])

    def _set(self, state: ChildState) -> None:
        self._states[state.name] = state
        self._tell(state)

    def _tell(self, state: ChildState) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(listener, state)


def launch_of(spec: ChildSpec) -> EngineLaunch:
    """The launch that a child was started with."""
    return EngineLaunch.model_validate(spec.note)


async def _hello(_request: web.Request) -> web.Response:
    return web.json_response({"choices": [{"message": {"content": "hello"}}]})


async def _nothing(_request: web.Request) -> web.Response:
    return web.json_response({"data": []})
