"""Which answers are stored, and how they come to their clients, on a real socket with OpenAI's client."""

import asyncio
import json
import logging
from typing import Any

import pytest
from openai import APIError, InternalServerError, NotFoundError
from openai.types.chat import ChatCompletionChunk

from api.openai.chats.keeping import deliver
from api.run import AS_IT_COMES
from infra.tokens import Key
from infra.types import KeyName
from tests.api.conftest import TOKEN
from tests.api.openai.chats.conftest import HELLO, Desk, OpenDesk

WEATHER: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


async def streamed(desk: Desk, **request: Any) -> list[ChatCompletionChunk]:
    asked: dict[str, Any] = {"model": "tiny", "messages": HELLO, "store": True, "stream": True} | request
    return [chunk async for chunk in await desk.client.chat.completions.create(**asked)]


@pytest.mark.parametrize("body", [{}, {"store": None}, {"store": False}, {"metadata": {"a": "b"}}])
async def test_who_does_not_ask_for_it_gets_the_answer_as_it_comes(open_desk: OpenDesk, body: dict[str, Any]) -> None:
    desk = await open_desk()
    assert deliver(desk.front.services, Key(KeyName("ann"), "user"), {"messages": [], **body}) is AS_IT_COMES
    completion = await desk.client.chat.completions.create(model="tiny", messages=HELLO, **body)
    assert completion.id == "theirs"
    assert {chunk.id for chunk in await streamed(desk, **{"store": False, **body})} == {"theirs"}
    assert await desk.listed() == []


async def test_a_plain_answer_is_found_again(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    raw = await desk.client.chat.completions.with_raw_response.create(
        model="gpt-4o", messages=HELLO, store=True, metadata={"topic": "snow"}, temperature=0.5, seed=3
    )
    made = raw.parse()
    assert made.id.startswith("chatcmpl-")
    stored: Any = await desk.client.chat.completions.retrieve(made.id)
    assert (stored.choices, stored.usage, stored.created) == (made.choices, made.usage, 7)
    assert stored.choices[0].message.content == "Hello."
    assert (stored.model, stored.metadata, stored.temperature, stored.seed) == ("tiny", {"topic": "snow"}, 0.5, 3)
    assert (stored.tools, stored.input_user, stored.request_id) == (None, None, raw.headers["x-coderai-run"])
    assert not hasattr(stored, "timings")


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize("model", ["tiny", "far"])
async def test_a_stream_is_put_together_again(open_desk: OpenDesk, model: str, usage: bool) -> None:
    desk = await open_desk()
    chunks = await streamed(desk, model=model, stream_options={"include_usage": usage}, metadata={"a": "b"})
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello."
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - usage) + [True] * usage
    (made,) = {chunk.id for chunk in chunks}
    stored: Any = await desk.client.chat.completions.retrieve(made)
    assert (stored.object, stored.model, stored.metadata) == ("chat.completion", model, {"a": "b"})
    (choice,) = stored.choices
    assert (choice.message.content, choice.message.role, choice.finish_reason) == ("Hello.", "assistant", "stop")
    assert (stored.usage.prompt_tokens, stored.usage.completion_tokens, stored.usage.total_tokens) == (7, 3, 10)


async def test_calls_of_a_stream(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    function = {"name": "get_weather", "arguments": ""}
    pieces: list[Any] = [
        {"index": 0, "id": "call_1", "type": "function", "function": function},
        {"index": 0, "function": {"arguments": '{"city":'}},
        {"index": 0, "function": {"arguments": '"Rome"}'}},
    ]
    desk.engine.deltas = [{"role": "assistant", "content": None}, *({"tool_calls": [piece]} for piece in pieces)]
    desk.engine.finish_reason = "tool_calls"
    chunks = await streamed(desk, model="far", tools=[WEATHER])
    stored: Any = await desk.client.chat.completions.retrieve(chunks[0].id)
    (call,) = stored.choices[0].message.tool_calls
    assert (call.id, call.function.name, call.function.arguments) == ("call_1", "get_weather", '{"city":"Rome"}')
    assert (stored.choices[0].message.content, stored.choices[0].finish_reason) == (None, "tool_calls")
    assert stored.tools == [WEATHER]


async def test_a_far_service_is_asked_as_ever_and_its_ids_may_come_twice(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    first, second = [await desk.made(model="far", metadata={"a": "b"}, n=2) for _ in range(2)]
    assert first.id != second.id
    assert len(first.choices) == 2
    assert [(each["store"], each["metadata"], each["model"]) for each in desk.engine.asked] == [
        (True, {"a": "b"}, "theirs")
    ] * 2
    assert await desk.listed() == [first.id, second.id]
    assert (await desk.client.chat.completions.retrieve(first.id)).choices == first.choices


async def test_the_end_is_told_when_it_is_stored(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.go_on.clear()
    stream = await desk.client.chat.completions.create(model="tiny", messages=HELLO, store=True, stream=True)
    chunks = aiter(stream)
    for word in ("Hel", "lo."):
        assert (await anext(chunks)).choices[0].delta.content == word
        assert await desk.listed() == []
    desk.engine.go_on.set()
    ending = await anext(chunks)
    assert ending.choices[0].finish_reason == "stop"
    assert await desk.listed() == [ending.id]


async def test_a_client_that_leaves_in_the_midst_has_nothing_stored(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.go_on.clear()
    stream = await desk.client.chat.completions.create(model="tiny", messages=HELLO, store=True, stream=True)
    assert (await anext(aiter(stream))).choices[0].delta.content == "Hel"
    await stream.close()
    (engine,) = [each for each in desk.front.services.fleet.engines() if each.local]
    async with asyncio.timeout(5):
        while engine.in_flight:
            await asyncio.sleep(0.01)
    desk.engine.go_on.set()
    async with asyncio.timeout(10):
        while desk.front.services.accounting.active:
            await asyncio.sleep(0.01)
    assert await desk.listed() == []


async def test_a_stream_that_breaks_is_not_stored(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.breaks_after = 1
    with pytest.raises(APIError, match="tried at cpu/tiny"):
        await streamed(desk)
    assert await desk.listed() == []


async def test_what_is_no_whole_answer_is_passed_on_and_not_stored(
    open_desk: OpenDesk, caplog: pytest.LogCaptureFixture
) -> None:
    desk = await open_desk()
    desk.engine.error = "out of memory"
    body = {"model": "far", "messages": HELLO, "store": True}
    with caplog.at_level(logging.WARNING, "api.openai.chats"):
        assert await desk.front.post("/v1/chat/completions", body) == (200, {"error": {"message": "out of memory"}})
        with pytest.raises(APIError, match="out of memory"):
            await streamed(desk, model="far")
    assert caplog.text.count("is not stored: it did not come whole, or is too large") == 2
    assert await desk.listed() == []


async def test_a_service_that_answers_a_stream_whole_is_passed_on_as_it_is(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.streams = False
    told = {"model": "far", "messages": HELLO, "stream": True}
    address, said = f"{desk.front.url}/v1/chat/completions", []
    for store in (False, True):
        body = told | {"store": store}
        async with desk.front.session.post(address, json=body, headers=desk.front.headers()) as answer:
            said.append(await answer.read())
    assert said[0] == said[1]
    assert json.loads(said[1])["choices"][0]["message"]["content"] == "Hello."
    assert await desk.listed() == []


async def test_a_store_that_fails_is_no_success(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    with desk.front.services.database.connection() as connection:
        connection.exec_driver_sql("ALTER TABLE chat_completion RENAME TO gone")
    with pytest.raises(InternalServerError) as failed:
        await desk.made()
    assert failed.value.status_code == 503
    told = {"model": "tiny", "messages": HELLO, "store": True, "stream": True}
    address = f"{desk.front.url}/v1/chat/completions"
    async with desk.front.session.post(address, json=told, headers=desk.front.headers()) as answer:
        said = [line.removeprefix("data: ") for line in (await answer.text()).splitlines() if line]
    assert json.loads(said[-1])["error"]["code"] == "database_unusable"
    assert not any('"finish_reason":"' in line for line in said)
    assert (await desk.made(store=False)).choices[0].message.content == "Hello."


async def test_a_stream_that_begins_with_its_end_is_a_stream_all_the_same(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.engine.deltas = []
    (chunk,) = await streamed(desk)
    assert chunk.choices[0].finish_reason == "stop"
    assert (await desk.client.chat.completions.retrieve(chunk.id)).choices[0].message.content is None


async def test_a_job_s_answer_is_kept_with_its_run_instead(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    request = {"model": "far", "messages": HELLO, "store": True, "stream": True}
    ask = {"flow": "chat", "request": request, "key": "user"}
    internal = {"Authorization": f"Bearer {TOKEN}"}
    async with desk.front.session.post(f"{desk.front.url}/internal/plan", json=ask, headers=internal) as answer:
        (step,) = (await answer.json())["steps"]
    assert (step["task"], step["inputs"]["request"]) == (
        "generate",
        {"model": "far", "messages": HELLO, "store": True},
    )


async def test_an_answer_that_is_kept_belongs_to_its_key(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    made = await desk.made()
    with pytest.raises(NotFoundError):
        await desk.clients["node"].chat.completions.retrieve(made.id)
    assert (await desk.clients["admin"].chat.completions.retrieve(made.id)).id == made.id
