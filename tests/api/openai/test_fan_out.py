"""One request over several engines: a whole front, two cards by hand, engines that are servers on the same loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from infra.types import EngineId, ModelName
from tests.api.conftest import TOKEN, Front, StartFront
from workers.live import Engine

TEXTS = [f"text {number}" for number in range(40)]
CARDS = {"engine_specs": [{"name": name, "backend": "cpu", "memory_mib": 4096} for name in ("cpu-a", "cpu-b")]}
Break = Callable[[str, web.Request], Awaitable[web.StreamResponse | None]]


class Engines:
    """Answers for every engine alike, from the texts alone; `broken` may answer in its place."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.asked: list[tuple[str, Any]] = []
        self.broken: Break | None = None
        front.children.answer = self

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        port = request.transport.get_extra_info("sockname")[1]
        name = next(state.name for state in self.front.children.states().values() if state.port == port)
        body = await request.json()
        self.asked.append((name, body))
        if self.broken is not None and (said := await self.broken(name, request)) is not None:
            return said
        if request.path == "/v1/rerank":
            results = [{"index": i, "relevance_score": -len(text)} for i, text in enumerate(body["documents"])]
            return web.json_response({"results": results, "usage": {"prompt_tokens": len(results)}})
        data = [
            {"object": "embedding", "index": index, "embedding": [float(sum(str(text).encode())), 0.1]}
            for index, text in enumerate(body["input"] if isinstance(body["input"], list) else [body["input"]])
        ]
        usage = {"prompt_tokens": 3 * len(data), "total_tokens": 3 * len(data)}
        return web.json_response({"object": "list", "model": body["model"], "data": data, "usage": usage})

    def shares(self) -> dict[str, int]:
        """Items that each engine was asked for, since the last look."""
        asked, self.asked = self.asked, []
        items: dict[str, int] = {}
        for name, body in asked:
            items[name] = items.get(name, 0) + len(body.get("documents") or body["input"])
        return items


@pytest.fixture
async def engines(start_front: StartFront, tiny_model: Path) -> Engines:
    """The model `e` on two cards, and `alone`, which is never split."""
    row: dict[str, Any] = {"path": str(tiny_model), "capabilities": ["embeddings", "rerank"]}
    models = [
        {"name": "e", **row, "distribute": {"min_items": 4}, "rerank_method": "cross_encoder"},
        {"name": "cosine", **row, "distribute": {"min_items": 4}, "rerank_method": "cosine"},
        {"name": "alone", **row, "distribute": {"enabled": False}, "rerank_method": "cosine"},
    ]
    made = Engines(await start_front(models, cards=CARDS))
    for model in ("e", "cosine"):
        entry = made.front.services.shelf.catalogue.get(model)
        many = {"model": model, "input": ["x"] * 64}
        assert (await made.front.post("/v1/embeddings", many))[0] == 200
        assert {engine.pool for engine in of(made.front, entry.name)} == {"cpu-a", "cpu-b"}
    made.shares()
    level(made, 10, 10)
    return made


def level(engines: Engines, *speeds: int) -> None:
    """Both cards as fast as that, for all that the front has seen."""
    for model in ("e", "cosine"):
        for pool, speed in zip(("cpu-a", "cpu-b"), speeds, strict=True):
            for _ in range(40):
                engines.front.services.sites.speeds.note(EngineId(f"{pool}/{model}"), ModelName(model), speed, 1.0)


def of(front: Front, model: str) -> list[Engine]:
    return front.services.fleet.residents.of(ModelName(model))


def ask(model: str = "e", count: int = 12, **more: Any) -> dict[str, Any]:
    return {"model": model, "input": TEXTS[:count], **more}


async def test_a_list_is_embedded_by_both_and_the_answer_is_as_if_by_one(engines: Engines) -> None:
    status, answer = await engines.front.post("/v1/embeddings", ask())
    shares = engines.shares()
    assert sum(shares.values()) == 12
    assert set(shares) == {"cpu-a/e", "cpu-b/e"}
    assert (status, answer) == (200, (await engines.front.post("/v1/embeddings", ask("alone")))[1] | {"model": "e"})
    assert [item["index"] for item in answer["data"]] == list(range(12))
    assert answer["usage"] == {"prompt_tokens": 36, "total_tokens": 36}


@pytest.mark.parametrize("model", ["e", "cosine"])
async def test_documents_are_ranked_over_all_parts(engines: Engines, model: str) -> None:
    documents = [f"{'x' * (number % 7)}{number}" for number in range(20)]
    body = {"model": model, "query": "q", "documents": documents, "top_n": 5, "return_documents": True}
    status, answer = await engines.front.post("/v1/rerank", body)
    assert (status, len(engines.shares())) == (200, 2)
    assert len(answer["results"]) == 5
    assert all(item["document"]["text"] == documents[item["index"]] for item in answer["results"])
    if model == "cosine":
        alone = (await engines.front.post("/v1/rerank", body | {"model": "alone"}))[1]
        assert answer == alone | {"model": "cosine"}, "usage and all: the query is embedded once"


async def test_what_is_small_goes_to_one_engine(engines: Engines) -> None:
    for body in (ask(count=3), ask() | {"input": "one text"}, ask() | {"input": list(range(40))}):
        assert (await engines.front.post("/v1/embeddings", body))[0] == 200
        assert len({name for name, _body in engines.asked}) == 1
        engines.asked.clear()


async def test_an_engine_that_dies_in_the_middle_is_replaced(engines: Engines) -> None:
    async def die(name: str, request: web.Request) -> web.StreamResponse | None:
        if name == "cpu-b/e":
            assert request.transport is not None
            request.transport.abort()
        return None

    engines.broken = die
    status, answer = await engines.front.post("/v1/embeddings", ask())
    engines.broken = None
    assert (status, answer) == (200, (await engines.front.post("/v1/embeddings", ask("alone")))[1] | {"model": "e"})


async def test_a_part_that_fails_everywhere_is_named_and_ends_its_siblings(engines: Engines) -> None:
    left: list[str] = []

    async def fail(name: str, request: web.Request) -> web.StreamResponse | None:
        if TEXTS[0] in (await request.json())["input"]:
            return web.json_response({"error": {"message": "out of memory"}}, status=500)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            left.append(name)
            raise
        return None

    engines.broken = fail
    status, answer = await engines.front.post("/v1/embeddings", ask())
    assert status == 502
    message = answer["error"]["message"]
    assert message.startswith("part-1 of the request failed at ")
    assert message.count("out of memory") == 2
    assert {f"at {engine.id}" in message for engine in of(engines.front, "e")} == {True}
    for _ in range(100):
        if all(engine.in_flight == 0 for engine in of(engines.front, "e")):
            break
        await asyncio.sleep(0.02)
    assert [engine.in_flight for engine in of(engines.front, "e")] == [0, 0]


async def test_the_plan_shows_the_parts_and_their_places(engines: Engines) -> None:
    status, planned = await engines.front.post("/v1/plan", {"endpoint": "embeddings", "request": ask()})
    assert status == 200
    assert [step["id"] for step in planned["plan"]["steps"]] == ["split", "part-1", "part-2", "merge"]
    places = [each["placement"] and each["placement"]["engine"] for each in planned["placements"]]
    assert places[0] is places[3] is None
    assert set(places[1:3]) == {"cpu-a/e", "cpu-b/e"}
    reasons = {over["reason"] for each in planned["placements"][1:3] for over in each["placement"]["passed_over"]}
    assert reasons == {"this part is for cpu-a", "this part is for cpu-b"}
    assert engines.asked == []


@pytest.mark.parametrize(("sizes", "cut"), [(None, [6, 6]), ([9, 2, 1], [9, 2, 1]), ([], None), ([5, 5], None)])
async def test_a_job_that_was_begun_is_cut_as_then(
    engines: Engines, sizes: list[int] | None, cut: list[int] | None
) -> None:
    front, asked = engines.front, {"flow": "embeddings", "request": ask(), "key": "user", "sizes": sizes}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with front.session.post(f"{front.url}/internal/plan", json=asked, headers=headers) as answer:
        steps = (await answer.json(content_type=None))["steps"]
    if cut is None:
        assert len(steps) == (1 if sizes == [] else 4)
        return
    assert steps[0]["inputs"] == {"sizes": cut}
    assert [step["items"] for step in steps[1:-1]] == cut


async def test_parts_follow_what_the_engines_delivered(engines: Engines) -> None:
    level(engines, 30, 10)
    await engines.front.post("/v1/embeddings", ask())
    assert engines.shares() == {"cpu-a/e": 9, "cpu-b/e": 3}
