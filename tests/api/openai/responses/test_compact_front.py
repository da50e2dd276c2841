"""Compactions on a real socket: made, gone on from, made again, and every one that is refused."""

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.openai.responses.compaction import ASKS, TELLS
from tests.api.conftest import TOKEN, StartFront
from tests.api.openai.responses.conftest import Desk, OpenDesk

COMPACT = "/v1/responses/compact"
TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": "My cat is called Otto."},
    {"role": "assistant", "content": "A fine name."},
    {"role": "user", "content": "He is seven."},
    {"role": "assistant", "content": "Not old."},
]
SUMMARY = "The user has a cat, Otto, who is seven."
NEXT: Any = {"role": "user", "content": "How old is my cat?"}


async def compacted(desk: Desk, scope: str = "user", **request: Any) -> dict[str, Any]:
    """A compaction; the engine's next answers are not summaries any more."""
    desk.engine.deltas = [{"content": SUMMARY}]
    status, body = await desk.front.post(COMPACT, {"model": "tiny", "input": TURNS} | request, scope)
    desk.engine.deltas = [{"content": "Seven."}]
    assert status == 200, body
    made: dict[str, Any] = body
    return made


def asked(desk: Desk) -> list[tuple[str, Any]]:
    """What the engine was asked last."""
    return [(message["role"], message["content"]) for message in desk.engine.asked[-1]["messages"]]


async def test_a_conversation_goes_on_from_its_compaction(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    made = await compacted(desk, instructions="Be brief.")
    assert asked(desk) == [
        ("system", "Be brief."),
        *((each["role"], each["content"]) for each in TURNS),
        ("user", ASKS),
    ]
    assert (desk.engine.asked[-1]["temperature"], desk.engine.asked[-1].get("stream")) == (0, None)
    assert (made["object"], made["id"][:5]) == ("response.compaction", "resp_")
    assert [item.get("role") for item in made["output"]] == ["user", "user", None]
    assert [item["content"][0]["text"] for item in made["output"][:2]] == [TURNS[0]["content"], TURNS[2]["content"]]
    assert set(made["output"][2]) == {"type", "id", "encrypted_content"}
    assert "Otto" not in made["output"][2]["encrypted_content"]
    assert (made["usage"]["input_tokens"], made["usage"]["output_tokens"]) == (7, 3)

    response = await desk.client.responses.create(model="tiny", input=[*made["output"], NEXT])
    assert response.output_text == "Seven."
    assert asked(desk) == [
        ("user", "My cat is called Otto."),
        ("user", "He is seven."),
        ("system", TELLS + SUMMARY),
        ("user", "How old is my cat?"),
    ]
    listed = [item async for item in desk.client.responses.input_items.list(response.id, order="asc")]
    assert [item.type for item in listed] == ["message", "message", "compaction", "message"]
    assert listed[2].to_dict() == made["output"][2]

    await desk.client.responses.create(model="tiny", input="And then?", previous_response_id=response.id)
    assert asked(desk)[2] == ("system", TELLS + SUMMARY)


async def test_a_stored_conversation_is_compacted_and_compacted_again(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    first = await desk.client.responses.create(model="tiny", input="one", instructions="rule")
    second = await desk.client.responses.create(model="tiny", input="two", previous_response_id=first.id)
    made = await compacted(desk, input=None, previous_response_id=second.id)
    assert [text for _role, text in asked(desk)] == ["one", "Hello.", "two", "Hello.", ASKS]
    assert [item["type"] for item in made["output"]] == ["message", "message", "compaction"]
    again = await compacted(desk, input=[*made["output"], NEXT])
    assert asked(desk)[2:] == [("system", TELLS + SUMMARY), ("user", NEXT["content"]), ("user", ASKS)]
    assert [item["type"] for item in again["output"]] == ["message", "message", "message", "compaction"]


async def test_a_compaction_alone_is_a_conversation(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    alone = [(await compacted(desk))["output"][-1]]
    await desk.client.responses.create(model="tiny", input=alone)
    assert asked(desk) == [("system", TELLS + SUMMARY)]
    again = await compacted(desk, input=alone)
    assert [item["type"] for item in again["output"]] == ["compaction"]


async def test_a_compaction_is_its_key_s_own(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    item = (await compacted(desk))["output"][-1]
    before = len(desk.engine.asked)
    for scope in ("node", "admin"):
        for path in ("/v1/responses", "/v1/responses/input_tokens", COMPACT):
            status, body = await desk.front.post(path, {"model": "tiny", "input": [NEXT, item]}, scope)
            assert status == 400, path
            assert (body["error"]["param"], body["error"]["code"]) == (
                "input.1.encrypted_content",
                "invalid_encrypted_content",
            )
    assert len(desk.engine.asked) == before


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens", COMPACT])
async def test_what_is_no_compaction(open_desk: OpenDesk, path: str) -> None:
    desk = await open_desk()
    good = (await compacted(desk))["output"][-1]["encrypted_content"]
    before = len(desk.engine.asked)
    middle = len(good) // 2
    changed = good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1 :]
    for wrong in (changed, good[:-1], good[:middle], good + good, "x" * 1_000_000, "no base64", "", 7, None, [good]):
        request = {"model": "tiny", "input": [{"type": "compaction", "encrypted_content": wrong}, NEXT]}
        status, body = await desk.front.post(path, request)
        assert (status, body["error"]["param"]) == (400, "input.0.encrypted_content"), str(wrong)[:50]
        assert len(body["error"]["message"]) < 300
    assert len(desk.engine.asked) == before


async def test_what_cannot_be_compacted(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    for request, param in (
        ({"model": "tiny"}, "input"),
        ({"input": "hi"}, "model"),
        ({"model": "tiny", "input": "hi", "stream": True}, "stream"),
        ({"model": "tiny", "input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
    ):
        status, body = await desk.front.post(COMPACT, request)
        assert (status, body["error"]["param"]) == (400, param)
    assert desk.engine.asked == []
    theirs = (await desk.client.responses.create(model="tiny", input="hi")).id
    for name in ("resp_none", theirs):
        status, body = await desk.front.post(COMPACT, {"model": "tiny", "previous_response_id": name}, "node")
        assert (status, body["error"]["param"]) == (404, "previous_response_id")
    assert len(desk.engine.asked) == 1


async def test_a_model_that_says_nothing_is_an_error(open_desk: OpenDesk) -> None:
    """Which is not its engine's fault: nobody else is asked, and the engine goes on."""
    desk = await open_desk()
    desk.engine.deltas = [{"content": " "}]
    status, body = await desk.front.post(COMPACT, {"model": "tiny", "input": TURNS, "instructions": "Answer nothing."})
    assert (status, body["error"]["param"]) == (400, "input")
    assert "wrote no summary" in body["error"]["message"]
    assert len(desk.engine.asked) == 1
    assert [engine.state for engine in desk.front.services.fleet.engines()] == ["ready"]


async def test_a_conversation_that_is_too_long(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.refuse_over = 3
    status, body = await desk.front.post(COMPACT, {"model": "tiny", "input": TURNS})
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")


async def test_a_run_is_recorded_planned_and_counted_as_a_compaction(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    await compacted(desk)
    (record,) = desk.front.services.active.all()
    assert (record.flow, record.status, record.prompt_tokens, record.completion_tokens) == (
        "compact",
        "completed",
        7,
        3,
    )
    async with desk.front.session.get(desk.front.url + "/metrics", headers=desk.front.headers("admin")) as answer:
        assert 'kind="compact"' in await answer.text()
    status, body = await desk.front.post(
        "/v1/plan", {"endpoint": "compact", "request": {"model": "tiny", "input": TURNS}}
    )
    assert status == 200
    (step,) = body["plan"]["steps"]
    assert (step["task"], step["inputs"]["request"]["messages"][-1]["content"]) == ("compact", ASKS)


async def test_a_job_opens_what_its_key_was_given(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    item = (await compacted(desk))["output"][-1]
    internal = {"Authorization": f"Bearer {TOKEN}"}
    for flow in ("responses", "compact"):
        for key, status in (("user", 200), ("node", 400)):
            ask = {"flow": flow, "request": {"model": "tiny", "input": [item, NEXT]}, "key": key}
            async with desk.front.session.post(f"{desk.front.url}/internal/plan", json=ask, headers=internal) as answer:
                plan = await answer.json()
            assert answer.status == status
            if status == 200:
                assert plan["steps"][0]["inputs"]["request"]["messages"][0]["content"] == TELLS + SUMMARY


async def test_a_far_service_sees_the_summary_and_never_what_is_sealed(start_front: StartFront) -> None:
    got: list[tuple[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        got.append((request.path, await request.json()))
        if request.path.endswith("/input_tokens"):
            return web.json_response({"object": "response.input_tokens", "input_tokens": 7})
        message = {"role": "assistant", "content": SUMMARY}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": []})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/{path:.*}", answer)
    async with TestServer(app) as service:
        front = await start_front([{"name": "far", "service_url": str(service.make_url("/"))}])
        status, made = await front.post(COMPACT, {"model": "far", "input": TURNS})
        assert status == 200, made
        assert "max_completion_tokens" not in got[-1][1]
        for path in ("/v1/responses", "/v1/responses/input_tokens", COMPACT):
            status, body = await front.post(path, {"model": "far", "input": [*made["output"], NEXT]})
            assert status == 200, body
        status, body = await front.post(COMPACT, {"model": "far", "input": TURNS, "stream": True})
        assert (status, body["error"]["param"]) == (400, "stream")
    seen = {"role": "system", "content": TELLS + SUMMARY}
    assert [path for path, _body in got] == [
        "/v1/chat/completions",
        "/v1/chat/completions",
        "/v1/responses/input_tokens",
        "/v1/chat/completions",
    ]
    assert got[1][1]["messages"][2] == got[3][1]["messages"][2] == seen
    assert got[2][1]["input"][2] == {"type": "message"} | seen
    assert not any(made["output"][-1]["encrypted_content"] in str(body) for _path, body in got)
