"""Responses through OpenAI's own client, on a real socket."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from openai import BadRequestError, InternalServerError, NotFoundError
from openai.types.responses import FunctionToolParam, Response, ResponseStreamEvent

from tests.api.conftest import TOKEN
from tests.api.openai.responses.conftest import Desk, OpenDesk

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}
CALL = [
    {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather"}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '"Rome"}'}}]},
]
WHOLE_CALL = {
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'}}
    ]
}


async def streamed(desk: Desk, **request: Any) -> list[ResponseStreamEvent]:
    stream = await desk.client.responses.create(model="tiny", stream=True, **request)
    return [event async for event in stream]


def ended(events: list[ResponseStreamEvent]) -> Response:
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete", "response.failed")
    return last.response


async def test_an_answer(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    raw = await desk.client.responses.with_raw_response.create(
        model="gpt-4o", input="hi", instructions="Be brief.", metadata={"a": "b"}, temperature=0.5, max_output_tokens=50
    )
    response = raw.parse()
    assert (response.output_text, response.status, response.model) == ("Hello.", "completed", "tiny")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (7, 3, 10)
    assert response.usage.input_tokens_details.cached_tokens == 2
    assert (response.metadata, response.temperature, response.instructions) == ({"a": "b"}, 0.5, "Be brief.")
    assert len(raw.headers["x-coderai-run"]) == 36
    assert raw.headers["x-coderai-engine"] == "cpu/tiny"
    asked = desk.engine.asked[0]
    assert asked["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert (asked["temperature"], asked["max_completion_tokens"]) == (0.5, 50)


async def test_a_stream(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    events = await streamed(desk, input="hi")
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(10))
    assert ended(events).output_text == "Hello."
    assert ended(events).usage is not None
    stored = await desk.client.responses.retrieve(ended(events).id)
    assert stored == ended(events)


async def test_a_call_and_its_output(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.deltas = [WHOLE_CALL]
    desk.engine.finish_reason = "tool_calls"
    first = await desk.client.responses.create(model="tiny", input="Rome?", tools=[WEATHER], tool_choice="required")
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, call.arguments, call.call_id, call.status) == (
        "get_weather",
        '{"city":"Rome"}',
        "call_1",
        "completed",
    )
    desk.engine.deltas, desk.engine.finish_reason = [{"content": "Sunny."}], "stop"
    second = await desk.client.responses.create(
        model="tiny",
        input=[{"type": "function_call_output", "call_id": "call_1", "output": "sun"}],
        previous_response_id=first.id,
        tools=[WEATHER],
    )
    assert second.output_text == "Sunny."
    assert second.previous_response_id == first.id
    said = desk.engine.asked[-1]["messages"]
    assert [message["role"] for message in said][-3:] == ["user", "assistant", "tool"]
    assert said[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "sun"}


async def test_a_call_in_a_stream(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.deltas = CALL
    desk.engine.finish_reason = "tool_calls"
    # The far end of a service is passed on as it comes, without corrections of what llama.cpp says.
    events = await streamed(desk, input="Rome?", tools=[WEATHER])
    kinds = [event.type for event in events]
    assert kinds[2:] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    (call,) = ended(events).output
    assert call.type == "function_call"
    assert (call.arguments, call.call_id) == ('{"city":"Rome"}', "call_1")


async def test_a_conversation_of_three_turns(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    previous = None
    for turn in range(3):
        response = await desk.client.responses.create(
            model="tiny", input=f"turn {turn}", previous_response_id=previous, instructions=f"rule {turn}"
        )
        previous = response.id
    assert [(message["role"], message["content"]) for message in desk.engine.asked[-1]["messages"]] == [
        ("system", "rule 2"),  # instructions are not carried over
        ("user", "turn 0"),
        ("assistant", "Hello."),
        ("user", "turn 1"),
        ("assistant", "Hello."),
        ("user", "turn 2"),
    ]
    assert previous is not None
    items = [item async for item in desk.client.responses.input_items.list(previous)]
    assert [item.type for item in items] == ["message"]


async def test_a_response_belongs_to_its_key(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    response = await desk.client.responses.create(model="tiny", input="hi")
    stranger = desk.clients["node"]
    for attempt in (
        stranger.responses.retrieve(response.id),
        stranger.responses.delete(response.id),
        stranger.responses.cancel(response.id),
        stranger.responses.create(model="tiny", input="and?", previous_response_id=response.id),
    ):
        with pytest.raises(NotFoundError):
            await attempt
    with pytest.raises(NotFoundError):
        await stranger.responses.input_items.list(response.id)
    admin = desk.clients["admin"]
    assert (await admin.responses.retrieve(response.id)).output_text == "Hello."
    assert (await admin.responses.create(model="tiny", input="and?", previous_response_id=response.id)).output_text


async def test_what_is_deleted_is_gone(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    first = await desk.client.responses.create(model="tiny", input="one")
    second = await desk.client.responses.create(model="tiny", input="two", previous_response_id=first.id)
    await desk.client.responses.delete(first.id)
    with pytest.raises(NotFoundError):
        await desk.client.responses.retrieve(first.id)
    with pytest.raises(NotFoundError):
        await desk.client.responses.delete(first.id)
    for previous in (first.id, second.id, "resp_unknown"):
        with pytest.raises(NotFoundError) as refused:
            await desk.client.responses.create(model="tiny", input="three", previous_response_id=previous)
        assert refused.value.param == "previous_response_id"
    assert len(desk.engine.asked) == 2


async def test_what_is_not_to_be_stored_is_not(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    response = await desk.client.responses.create(model="tiny", input="hi", store=False)
    assert response.output_text == "Hello."
    with pytest.raises(NotFoundError):
        await desk.client.responses.retrieve(response.id)


async def test_too_few_tokens_leave_it_incomplete(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.finish_reason = "length"
    response = await desk.client.responses.create(model="tiny", input="hi", max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    events = await streamed(desk, input="hi", max_output_tokens=2)
    assert events[-1].type == "response.incomplete"
    assert ended(events).output[0].status == "incomplete"  # type: ignore[union-attr]


async def test_a_broken_stream_ends_with_a_failed_response(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.breaks_after = 1
    events = await streamed(desk, input="hi")
    failed = ended(events)
    assert events[-1].type == "response.failed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert failed.error is not None
    assert failed.error.code == "server_error"
    assert "tried at cpu/tiny" in failed.error.message
    with pytest.raises(NotFoundError):
        await desk.client.responses.retrieve(failed.id)


async def test_an_error_before_the_stream_has_its_status(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.refuse_over = 0
    with pytest.raises(BadRequestError) as refused:
        await streamed(desk, input="hi")
    assert refused.value.code == "context_length_exceeded"


async def test_the_oldest_turns_go_where_truncation_is_auto(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.refuse_over = 3
    turns: list[Any] = []
    for turn in range(4):
        turns += [{"role": "user", "content": f"q{turn}"}, {"role": "assistant", "content": f"a{turn}"}]
    turns.append({"role": "user", "content": "last"})
    with pytest.raises(BadRequestError):
        await desk.client.responses.create(model="tiny", input=turns)
    response = await desk.client.responses.create(model="tiny", input=turns, instructions="rule", truncation="auto")
    assert response.output_text == "Hello."
    said = [message["content"] for message in desk.engine.asked[-1]["messages"]]
    assert said == ["rule", "last"]


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"background": True, "store": False}, "store"),
        ({"background": "yes"}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0.type"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]}, "input.0.content.0"),
        ({"input": None}, "input"),
        ({"previous_response_id": 7}, "previous_response_id"),
        ({"frobnicate": 1}, "frobnicate"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
    ],
)
async def test_what_is_not_done_here_is_named(open_desk: OpenDesk, request_: dict[str, Any], param: str) -> None:
    desk = await open_desk()
    status, body = await desk.front.post("/v1/responses", {"model": "tiny", "input": "hi"} | request_)
    assert (status, body["error"]["param"]) == (400, param)
    assert desk.engine.asked == []


async def test_a_response_is_no_background_work(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    response = await desk.client.responses.create(model="tiny", input="hi")
    with pytest.raises(BadRequestError, match="Cannot cancel a synchronous response"):
        await desk.client.responses.cancel(response.id)
    with pytest.raises(BadRequestError) as refused:
        await desk.client.responses.retrieve(response.id, stream=True)
    assert refused.value.param == "stream"


async def test_a_store_that_fails_is_no_success(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    with desk.front.services.database.connection() as connection:
        connection.exec_driver_sql("ALTER TABLE response RENAME TO gone")
    with pytest.raises(InternalServerError):
        await desk.client.responses.create(model="tiny", input="hi")
    assert ended(await streamed(desk, input="hi")).status == "failed"
    assert (await desk.client.responses.create(model="tiny", input="hi", store=False)).status == "completed"


async def test_a_client_that_leaves_frees_its_slot(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    gone = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n')
                await asyncio.sleep(0.02)
        except (ConnectionError, asyncio.CancelledError):
            gone.set()
            raise

    desk.front.children.answer = endless
    stream = await desk.client.responses.create(model="tiny", input="hi", stream=True)
    assert (await anext(aiter(stream))).type == "response.created"
    (engine,) = desk.front.services.fleet.engines()
    assert engine.in_flight == 1
    await stream.close()
    async with asyncio.timeout(1):
        await gone.wait()
        while engine.in_flight:
            await asyncio.sleep(0.01)


async def test_a_run_is_recorded_and_counted_as_a_response(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    await desk.client.responses.create(model="tiny", input="hi")
    (record,) = desk.front.services.active.all()
    assert (record.flow, record.status, record.prompt_tokens, record.completion_tokens) == (
        "responses",
        "completed",
        7,
        3,
    )
    async with desk.front.session.get(desk.front.url + "/metrics", headers=desk.front.headers("admin")) as answer:
        assert 'kind="responses"' in await answer.text()


async def test_the_plan_of_a_response(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    asked = {"endpoint": "responses", "request": {"model": "tiny", "input": "hi"}}
    status, body = await desk.front.post("/v1/plan", asked)
    assert status == 200
    (step,) = body["plan"]["steps"]
    assert (step["task"], step["inputs"]["request"]["messages"][0]["content"]) == ("respond", "hi")


async def test_a_job_goes_on_from_its_keys_response_and_is_not_stored(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    first = await desk.client.responses.create(model="tiny", input="one")
    request = {"model": "tiny", "input": "two", "previous_response_id": first.id, "stream": True}
    internal = {"Authorization": f"Bearer {TOKEN}"}
    for key, status in (("user", 200), ("node", 404)):
        ask = {"flow": "responses", "request": request, "key": key}
        async with desk.front.session.post(f"{desk.front.url}/internal/plan", json=ask, headers=internal) as answer:
            plan = await answer.json()
        assert answer.status == status
        if status == 200:
            inputs = plan["steps"][0]["inputs"]
            assert [message["content"] for message in inputs["request"]["messages"]] == ["one", "Hello.", "two"]
            assert "stream" not in inputs["request"]
            assert inputs["response"]["store"] is False
