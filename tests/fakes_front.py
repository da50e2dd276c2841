"""A front as the worker process knows it: `/internal/*` on a real socket, strict about what it hears; and an engine."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson
from aiohttp import WSMsgType, web

from flows.chat import plan_chat, plan_completions
from flows.distribute import Cut, in_parts
from flows.embeddings import plan_embeddings
from flows.plan import Plan
from flows.rerank import SPREAD_RERANK, plan_rerank
from infra.errors import CoderAIError, ModelNotFound
from infra.listen import RUN_FILE
from infra.types import EngineId, Frozen, Json, KeyName, PoolId
from tests.fakes import make_entry
from tests.loopback import serve
from workers.refused import refusal
from workers.sites import Site
from workers.types import Capability, Placement
from workers.wire import LeaseAsk, LeaseGiven, LeaseOver

TOKEN = "internal-token"
PLANNERS: dict[str, Callable[..., Plan]] = {
    "chat": plan_chat,
    "completions": plan_completions,
    "embeddings": plan_embeddings,
    "rerank": plan_rerank,
}


class PlanAsk(Frozen):
    """What is sent to `/internal/plan`."""

    flow: str
    request: dict[str, Json]
    key: KeyName
    sizes: tuple[int, ...] | None = None


@dataclass
class FakeFront:
    """`refuse` is asked before each lease; `engine_url` is where every lease leads; documents are spread over `sites`,
    if there are any."""

    home: Path
    engine_url: str = ""
    token: str = TOKEN
    cards: list[str] = field(default_factory=lambda: ["cpu"])
    own_runs: set[str] = field(default_factory=set)
    refuse: Callable[[LeaseAsk], CoderAIError | None] = lambda _ask: None
    sites: tuple[Site, ...] = ()
    plans: list[PlanAsk] = field(default_factory=list)
    leases: list[LeaseAsk] = field(default_factory=list)
    overs: list[LeaseOver | None] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    held: int = 0
    url: str = ""
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Serve, and say where."""
        app = web.Application(middlewares=[self._only_ours])
        app.router.add_post("/internal/plan", self._plan)
        app.router.add_get("/internal/pools", self._pools)
        app.router.add_post("/internal/runs/{run}/cancel", self._cancel)
        app.router.add_get("/internal/leases", self._lease)
        self._runner, self.url = await serve(app)
        file = self.home.joinpath(*RUN_FILE)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(orjson.dumps({"url": self.url, "pid": 1, "token": self.token}))

    async def stop(self) -> None:
        """End as a front that is killed: its file stays."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _only_ours(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({}, status=404)
        return await handler(request)

    async def _plan(self, request: web.Request) -> web.Response:
        ask = PlanAsk.model_validate_json(await request.read())
        self.plans.append(ask)
        model = str(ask.request["model"])
        if model == "nobody":
            return _failed(ModelNotFound("Model 'nobody' is not available"), 404)
        capability = Capability(ask.flow)
        entry = make_entry(model, capabilities=(capability,))
        plan = None
        if self.sites and ask.flow == "rerank":
            plan = in_parts(SPREAD_RERANK, ask.request, entry, Cut(lambda _entry: self.sites, ask.sizes or ()))
        plan = plan or PLANNERS[ask.flow](ask.request, entry, None)
        return web.Response(body=plan.to_json(), content_type="application/json")

    async def _pools(self, _request: web.Request) -> web.Response:
        return web.json_response({"pools": [{"pool": card, "backend": "cpu", "unusable": None} for card in self.cards]})

    async def _cancel(self, request: web.Request) -> web.Response:
        run = request.match_info["run"]
        self.cancelled.append(run)
        return web.json_response({"cancelled": run in self.own_runs})

    async def _lease(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=0.4)  # whoever answers no ping has gone, as for the real one
        await socket.prepare(request)
        ask = LeaseAsk.model_validate_json(await socket.receive_str())
        error = self.refuse(ask)
        if error is not None:
            await socket.send_str(refusal(error).model_dump_json())
            await socket.close()
            return socket
        self.leases.append(ask)
        self.held += 1
        try:
            await socket.send_str(self._given(ask).model_dump_json())
            message = await socket.receive()
            text = message.type is WSMsgType.TEXT
            self.overs.append(LeaseOver.model_validate_json(message.data) if text else None)
        finally:
            self.held -= 1
        return socket

    def _given(self, ask: LeaseAsk) -> LeaseGiven:
        engine = EngineId(f"cpu/{ask.model}")
        return LeaseGiven(
            engine=engine,
            entry=make_entry(ask.model),
            pool=PoolId("cpu"),
            local=True,
            slots=4,
            base_url=f"{self.engine_url}/v1",
            headers={"Authorization": "Bearer engine-key"},
            incarnation=1,
            placement=Placement("use", PoolId("cpu"), engine, "it holds the model"),
            waited_s=0.0,
        )


def _failed(error: CoderAIError, status: int) -> web.Response:
    body = {"error": {"message": error.message}, "refused": refusal(error).model_dump()}
    return web.json_response(body, status=status)


@dataclass
class FakeEngine:
    """An OpenAI server that counts what it is asked, by path. `slow_s` delays each answer but the first `quick`
    ones; none is given while it is `held`; `broken` paths break off."""

    slow_s: float = 0.0
    quick: int = 0
    held: bool = False
    broken: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    busy: int = 0
    left: int = 0
    """Requests whose client left before the answer."""
    url: str = ""
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/{path:.*}", self._answer)
        self._runner, self.url = await serve(app, handler_cancellation=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == "Bearer engine-key"
        path = request.match_info["path"]
        self.asked.append(path)
        body = await request.json()
        self.bodies.append(body)
        self.busy += 1
        try:
            await asyncio.sleep(self.slow_s if len(self.asked) > self.quick else 0.0)
            while self.held:  # tests set it from a thread of their own
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            self.left += 1
            raise
        finally:
            self.busy -= 1
        if path in self.broken:
            return web.json_response({"error": {"message": "out of memory", "code": 500}}, status=500)
        return web.json_response(_ANSWERS[path](body))


_USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
_ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "chat/completions": lambda body: {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": _USAGE,
    },
    "rerank": lambda body: {
        "results": [{"index": i, "relevance_score": float(i)} for i, _ in enumerate(body["documents"])],
        "usage": _USAGE,
    },
}
