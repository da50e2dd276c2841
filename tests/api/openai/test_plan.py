"""`/v1/plan`: what a request would do, with each step's place, and nothing done."""

import json
from typing import Any

import pytest

from flows.plan import Plan
from tests.api.conftest import StartFront

CHAT: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}


async def test_the_plan_is_the_one_that_would_run(start_front: StartFront) -> None:
    front = await start_front()
    status, body = await front.post("/v1/plan", {"endpoint": "chat", "request": CHAT})
    assert status == 200
    plan = body["plan"]
    assert (plan["flow"], plan["model"]) == ("chat", "tiny")
    (step,) = plan["steps"]
    assert step["task"] == "generate"
    assert step["inputs"]["path"] == "/chat/completions"
    (placed,) = body["placements"]
    assert placed["step"] == step["id"]
    assert (placed["placement"]["action"], placed["placement"]["pool"]) == ("load", "cpu")
    assert placed["placement"]["reason"]
    assert front.children.started == []
    assert front.services.accounting.active == 0


async def test_a_step_of_the_front_itself_has_no_place(start_front: StartFront) -> None:
    far = {"name": "ranker", "service_url": "http://127.0.0.1:9", "capabilities": ["rerank"]}
    front = await start_front(models=[far])
    request = {"model": "ranker", "query": "q", "documents": ["a", {"text": "b"}]}
    status, body = await front.post("/v1/plan", {"endpoint": "rerank", "request": request})
    assert status == 200
    scored, ranked = body["placements"]
    assert scored["placement"]["pool"] == "service:127.0.0.1:9"
    assert ranked["placement"] is None
    assert body["plan"]["steps"][1]["refs"] == {"scored": scored["step"]}


async def test_what_was_shown_can_be_read_back(start_front: StartFront) -> None:
    front = await start_front()
    async with front.session.post(
        front.url + "/v1/plan", json={"endpoint": "chat", "request": CHAT}, headers=front.headers()
    ) as answer:
        plan = (await answer.json())["plan"]
    assert Plan.from_json(json.dumps(plan)).flow == "chat"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"endpoint": "dance", "request": CHAT}, 400, "endpoint"),
        ({"endpoint": "chat"}, 400, "request"),
        ({"endpoint": "chat", "request": []}, 400, "request"),
        ({"endpoint": "chat", "request": {}}, 404, "model"),
        ({"endpoint": "chat", "request": {"model": ["x"]}}, 404, "model"),
        ({"endpoint": "chat", "request": CHAT | {"model": "nope"}}, 404, "model"),
        ({"endpoint": "chat", "request": CHAT | {"messages": "hi"}}, 400, "messages"),
        ({"endpoint": "embeddings", "request": CHAT}, 400, "model"),
        ({"endpoint": "chat", "request": CHAT, "run": True}, 400, "run"),
    ],
)
async def test_what_cannot_be_planned(start_front: StartFront, body: Any, status: int, param: str) -> None:
    front = await start_front()
    got, answer = await front.post("/v1/plan", body)
    assert (got, answer["error"]["param"]) == (status, param)
