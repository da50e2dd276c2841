"""Engines are asked how far they are: those that can tell, once in a moment, and patiently."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.types import EngineId, PoolId
from tests.fakes import make_entry
from workers.live import Engine
from workers.progress import ProgressLooks
from workers.transport import Transport
from workers.types import Capability, ModelFormat

pytestmark = pytest.mark.enable_socket
ROW = {"run": "r", "step": "s", "phase": "denoising", "current": 1, "total": 2, "per_s": 1.0, "elapsed_s": 1.0}


class Bench:
    """An engine that counts how often it is asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0
        self.now_s = 0.0

    async def tell(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer engine-key"
        self.asked += 1
        return web.json_response(self.answer)


@asynccontextmanager
async def looks(bench: Bench, **fields: Any) -> AsyncIterator[tuple[ProgressLooks, Engine]]:
    app = web.Application()
    app.router.add_get("/v1/progress", bench.tell)
    transport = Transport()
    entry = make_entry(**{"format": ModelFormat.DIFFUSERS, "capabilities": (Capability.IMAGES,)} | fields)
    async with TestServer(app, host="127.0.0.1") as server:
        headers = {"Authorization": "Bearer engine-key"}
        url = str(server.make_url("/v1"))
        engine = Engine(EngineId("cpu/m"), entry, PoolId("cpu"), True, 1, url, headers, state="ready")
        yield ProgressLooks(transport, lambda: bench.now_s), engine
        await transport.close()


async def test_many_who_ask_in_a_moment_share_one_look() -> None:
    bench = Bench({"data": [ROW]})
    async with looks(bench) as (all_looks, engine):
        answers = await asyncio.gather(*(all_looks.at([engine, engine]) for _ in range(5)))
        assert [[one.current for one in answer] for answer in answers] == [[1]] * 5
        assert bench.asked == 1
        bench.now_s = 1.0
        await all_looks.at([engine])
        assert bench.asked == 2


async def test_who_leaves_takes_the_look_from_nobody() -> None:
    bench = Bench({"data": [ROW]})
    async with looks(bench) as (all_looks, engine):
        first = asyncio.ensure_future(all_looks.at([engine]))
        second = asyncio.ensure_future(all_looks.at([engine]))
        await asyncio.sleep(0)
        first.cancel()
        assert len(await second) == 1


@pytest.mark.parametrize("answer", [{}, {"data": "much"}, {"data": [{"run": 1}]}, [], {"error": {}}])
async def test_what_makes_no_sense_is_nothing(answer: Any) -> None:
    async with looks(Bench(answer)) as (all_looks, engine):
        assert await all_looks.at([engine]) == []


async def test_who_cannot_tell_is_not_asked() -> None:
    bench = Bench({"data": [ROW]})
    async with looks(bench, format=ModelFormat.GGUF) as (all_looks, engine):
        assert await all_looks.at([engine]) == []
    async with looks(bench) as (all_looks, engine):
        engine.state = "loading"
        assert await all_looks.at([engine]) == []
        engine.state, engine.base_url = "ready", "http://127.0.0.1:1/v1"
        assert await all_looks.at([engine]) == []
    assert bench.asked == 0
