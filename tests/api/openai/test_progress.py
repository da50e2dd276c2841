"""The progress of generations on a whole front: of both lanes, each key's own, all for an admin."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from infra.types import KeyName, ModelName, RunId
from tests.api.conftest import TOKEN, Front, StartFront
from workers.types import Capability, Demand
from workers.wire import LeaseAsk, LeaseGiven, LeaseOver

pytestmark = pytest.mark.enable_socket
WAN = {"name": "wan", "format": "diffusers", "capabilities": ["video"], "weights_bytes": 1000, "max_instances": 2}
EARS = {"name": "ears", "format": "whisper", "capabilities": ["stt"], "weights_bytes": 1000}
SHOT = {"model": "wan", "prompt": "a cat", "size": "32x32", "num_frames": 9, "seed": 1, "response_format": "b64_mp4"}
IDLE = {
    "active": False,
    "phase": "idle",
    "model": None,
    "current": 0,
    "total": 0,
    "pct": 0.0,
    "it_per_s": 0.0,
    "elapsed": 0.0,
    "runs": [],
}
JOB = RunId("5d2c0f6e-0000-4000-8000-000000000000")


class Films:
    """An engine that works on each request until it may end it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.marks: list[tuple[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.marks.append((request.headers["X-Coderai-Run"], request.headers["X-Coderai-Step"]))
        await self.go.wait()
        return web.Response(body=b"film", content_type="video/mp4")

    async def progress(self, _request: web.Request) -> web.Response:
        rows = [
            {"run": run, "step": step, "phase": "denoising", "current": 5, "total": 20, "per_s": 2.0, "elapsed_s": 3.0}
            for run, step in self.marks
        ]
        return web.json_response({"data": rows})


@asynccontextmanager
async def filming(start_front: StartFront, tmp_path: Any) -> AsyncIterator[tuple[Front, Films]]:
    rows = [row | {"path": str(tmp_path)} for row in (WAN, EARS)]
    front, films = await start_front(rows), Films()
    front.children.answer, front.children.progress = films.answer, films.progress
    yield front, films
    films.go.set()


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


async def test_nothing_is_under_way(start_front: StartFront) -> None:
    front = await start_front()
    for kind in ("images", "video", "audio"):
        assert await front.get(f"/v1/{kind}/progress") == (200, IDLE)
        assert (await front.get(f"/v1/{kind}/progress", None))[0] == 401


async def test_a_run_in_the_words_of_its_engine(start_front: StartFront, tmp_path: Any) -> None:
    async with filming(start_front, tmp_path) as (front, films):
        asking = asyncio.create_task(front.post("/v1/video/generations", SHOT | {"n": 2}))
        await until(lambda: films.marks)
        status, body = await front.get("/v1/video/progress")
        assert status == 200
        (run,) = body.pop("runs")
        assert body == {name: run[name] for name in body if name != "active"} | {"active": True}
        assert (run["run"], run["model"], run["phase"]) == (films.marks[0][0], "wan", "denoising")
        assert (run["current"], run["total"], run["pct"], run["it_per_s"]) == (5, 40, 12.5, 2.0)
        assert run["steps"] == [
            {"step": "video-1", "phase": "denoising", "current": 5, "total": 20, "it_per_s": 2.0, "elapsed": 3.0}
        ]
        _status, shown = await front.get(f"/v1/runs/{run['run']}")
        assert (shown["progress"]["current"], shown["progress"]["total"]) == (5, 40)
        for other in ("images", "audio"):
            assert (await front.get(f"/v1/{other}/progress"))[1] == IDLE
        assert (await front.get("/v1/video/progress", "node"))[1] == IDLE, "another key sees nothing of it"
        assert (await front.get("/v1/video/progress", "admin"))[1]["active"]
        films.go.set()
        assert (await asking)[0] == 200
        assert (await front.get("/v1/video/progress"))[1] == IDLE
        assert (await front.get(f"/v1/runs/{run['run']}"))[1]["progress"] is None


async def test_a_job_is_known_by_its_steps(start_front: StartFront, tmp_path: Any) -> None:
    async with filming(start_front, tmp_path) as (front, films):
        films.marks.append((JOB, "video-2"))
        ask = LeaseAsk(
            run=JOB,
            step="video-2",
            flow="video",
            key=KeyName("user"),
            model=ModelName("wan"),
            demand=Demand(ModelName("wan"), Capability.VIDEO),
            peers=3,
            done=("video-1",),
        )
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with front.session.ws_connect(front.url + "/internal/leases", headers=headers) as socket:
            await socket.send_str(ask.model_dump_json())
            LeaseGiven.model_validate_json(await socket.receive_str(timeout=10))
            _status, body = await front.get("/v1/video/progress")
            assert (body["current"], body["total"]) == (25, 60)
            assert body["runs"][0]["run"] == JOB
            assert (await front.get("/v1/video/progress", "node"))[1] == IDLE
            await socket.send_str(LeaseOver().model_dump_json())
            await socket.receive(timeout=5)
        assert (await front.get("/v1/video/progress"))[1] == IDLE
