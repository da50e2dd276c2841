"""Plans, cards and cancellations for the worker process."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from flows.plan import Plan
from infra.errors import CoderAIError, InvalidRequest, ModelNotFound
from infra.types import PoolId, RunId
from infra.usage import list_usage
from tests.api.conftest import TOKEN, Front, StartFront
from workers.refused import rebuilt
from workers.wire import LeaseRefused

pytestmark = pytest.mark.enable_socket

OURS = {"Authorization": f"Bearer {TOKEN}"}
CHAT: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}


async def post(front: Front, path: str, body: Any) -> tuple[int, Any, bytes]:
    async with front.session.post(front.url + path, json=body, headers=OURS) as answer:
        return answer.status, await answer.json(), await answer.read()


async def plan(front: Front, request: Any, flow: str = "chat") -> tuple[int, Any, bytes]:
    return await post(front, "/internal/plan", {"flow": flow, "request": request, "key": "ann"})


async def test_a_plan_is_the_one_that_a_client_would_get(start_front: StartFront) -> None:
    front = await start_front()
    status, _answer, text = await plan(front, CHAT)
    assert status == 200
    made = Plan.from_json(text)
    _status, shown = await front.post("/v1/plan", {"endpoint": "chat", "request": CHAT})
    assert made.to_json() == text
    assert (made.flow, made.model) == ("chat", "tiny")
    assert [step["id"] for step in shown["plan"]["steps"]] == [step.id for step in made.steps]


async def test_a_job_s_answer_is_not_streamed(start_front: StartFront) -> None:
    front = await start_front()
    _status, _answer, plain = await plan(front, CHAT)
    status, _answer, text = await plan(front, CHAT | {"stream": True, "stream_options": {"include_usage": True}})
    assert (status, text) == (200, plain)


@pytest.mark.parametrize(
    ("flow", "request_", "status", "kind", "param"),
    [
        ("chat", CHAT | {"model": "nope"}, 404, ModelNotFound, "model"),
        ("chat", {}, 404, ModelNotFound, "model"),
        ("chat", CHAT | {"messages": 1}, 400, InvalidRequest, "messages"),
        ("embeddings", {"model": "tiny", "input": "x"}, 400, InvalidRequest, "model"),
        ("paint", CHAT, 400, InvalidRequest, "flow"),
        ("chat", [], 400, InvalidRequest, None),
    ],
)
async def test_what_cannot_be_planned_comes_back_as_the_error_it_is(
    start_front: StartFront, flow: str, request_: Any, status: int, kind: type[CoderAIError], param: str | None
) -> None:
    front = await start_front()
    answered, answer, _text = await plan(front, request_, flow)
    error = rebuilt(LeaseRefused.model_validate(answer["refused"]))
    assert (answered, type(error), error.param) == (status, kind, param)
    assert answer["error"]["message"] == error.message


async def test_a_job_is_one_request_of_its_key(start_front: StartFront) -> None:
    front = await start_front()
    await plan(front, CHAT)
    await plan(front, CHAT | {"messages": 1})
    await front.services.accounting.flush()
    (row,) = list_usage(front.services.database, **_ever())
    assert (row.key_name, row.model, row.kind, row.requests, row.errors) == ("ann", "tiny", "chat", 1, 0)


async def test_the_cards_are_told_with_what_is_wrong_with_them(start_front: StartFront) -> None:
    specs = [{"name": "cpu", "backend": "cpu"}, {"name": "big", "backend": "cuda", "memory_mib": 1000}]
    front = await start_front(cards={"engine_specs": specs})
    async with front.session.get(front.url + "/internal/pools", headers=OURS) as answer:
        told = {pool["pool"]: pool for pool in (await answer.json())["pools"]}
    assert (told["cpu"]["backend"], told["cpu"]["unusable"]) == ("cpu", None)
    assert "has no cuda support" in told[PoolId("big")]["unusable"]


async def test_a_run_of_the_front_is_ended(start_front: StartFront) -> None:
    front = await start_front()
    hangs = asyncio.Event()

    async def hang(_request: web.Request) -> web.Response:
        hangs.set()
        await asyncio.sleep(60)
        raise AssertionError

    front.children.answer = hang
    asking = asyncio.create_task(front.post("/v1/chat/completions", CHAT))
    await asyncio.wait_for(hangs.wait(), 5)
    (record,) = front.services.active.all()
    assert await _cancelled(front, record.id)
    status, answer = await asking
    assert (status, answer["error"]["code"]) == (409, "run_cancelled")
    assert not await _cancelled(front, record.id)
    assert not await _cancelled(front, RunId("nobody-s"))
    assert [engine.in_flight for engine in front.services.fleet.engines()] == [0]


async def _cancelled(front: Front, run: RunId) -> Any:
    status, answer, _text = await post(front, f"/internal/runs/{run}/cancel", {})
    assert status == 200
    return answer["cancelled"]


def _ever() -> dict[str, Any]:
    from datetime import date

    return {"first_day": date.min, "last_day": date.max}
