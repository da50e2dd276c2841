"""The task: it asks a chat, tells the answer as a response, and shortens what is too long where it may."""

import json
from typing import Any

import pytest
from aiohttp import web

from infra.errors import EngineFailed, UpstreamRefused
from infra.types import Json
from tasks.responses.respond import respond
from tasks.types import TaskCall, Usage
from tests.tasks.said import Said
from tests.tasks.test_generate import Far, streamed, whole
from tests.tasks.test_generate import far as far

pytestmark = pytest.mark.enable_socket

CHAT: dict[str, Json] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
ANSWER = (
    b'{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"hello"}}],'
    b'"usage":{"prompt_tokens":7,"completion_tokens":2}}'
)
TOO_LONG = (
    b'{"error":{"code":400,"type":"exceed_context_size_error","message":'
    b'"request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"}}'
)
STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"content":"hel"}}]}\r\n\r\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)


def call(far: Far, channel: Said | None = None, request: dict[str, Json] = CHAT, **skeleton: Json) -> TaskCall:
    return TaskCall({"request": request, "response": skeleton}, far.transport, far.local(), channel)


async def test_a_whole_answer(far: Far) -> None:
    far.answer = whole(ANSWER)
    result = await respond(call(far, model="m"))
    response = json.loads(result.value)  # type: ignore[arg-type]
    assert response["output"][0]["content"][0]["text"] == "hello"
    assert (result.usage, result.ending) == (Usage(7, 2, 0), b"")


@pytest.mark.parametrize("size", [7, 10_000])
async def test_a_stream_in_whatever_pieces(far: Far, size: int) -> None:
    far.answer = streamed(*(STREAM[place : place + size] for place in range(0, len(STREAM), size)))
    said = Said()
    result = await respond(call(far, said, CHAT | {"stream": True}))
    response = json.loads(result.value)  # type: ignore[arg-type]
    assert response["output"][0]["content"][0]["text"] == "hello"
    assert said.text.count(b"event: response.output_text.delta\n") == 2
    assert b"response.completed" not in said.text
    assert result.ending.startswith(b"event: response.completed\n")
    assert result.usage == Usage(7, 2, 0)


async def test_an_engine_that_breaks_off_within_an_event(far: Far) -> None:
    far.answer = streamed(b'data: {"choices":[]}\n\ndata: {"cho')
    with pytest.raises(EngineFailed, match="in the midst of an event"):
        await respond(call(far, Said(), CHAT | {"stream": True}))


async def test_an_error_in_the_midst_of_a_stream(far: Far) -> None:
    far.answer = streamed(b'data: {"error":{"message":"out of memory"}}\n\n')
    with pytest.raises(EngineFailed, match="out of memory"):
        await respond(call(far, Said(), CHAT | {"stream": True}))


@pytest.mark.parametrize("body", [b"no json", b"[]"])
async def test_an_answer_that_is_none(far: Far, body: bytes) -> None:
    far.answer = whole(body)
    with pytest.raises(EngineFailed, match="JSON"):
        await respond(call(far))


async def test_a_conversation_loses_its_older_half_until_it_fits(far: Far) -> None:
    async def answer(request: web.Request) -> web.Response:
        fits = len((await request.json())["messages"]) <= 3
        return web.Response(body=ANSWER if fits else TOO_LONG, status=200 if fits else 400)

    far.answer = answer
    messages: list[Any] = [{"role": "system", "content": "rule"}]
    for turn in range(4):
        messages += [{"role": "user", "content": f"q{turn}"}, {"role": "assistant", "content": f"a{turn}"}]
    long: dict[str, Json] = {"model": "m", "messages": messages}
    with pytest.raises(UpstreamRefused):
        await respond(call(far, request=long, truncation="disabled"))
    await respond(call(far, request=long, truncation="auto"))
    asked = [[message["content"] for message in body["messages"]] for _path, body in far.asked]
    assert asked[1:] == [[m["content"] for m in messages], ["rule", "q2", "a2", "q3", "a3"], ["rule", "q3", "a3"]]


async def test_a_summary_outlives_the_turns_before_it(far: Far) -> None:
    async def answer(request: web.Request) -> web.Response:
        fits = len((await request.json())["messages"]) <= 2
        return web.Response(body=ANSWER if fits else TOO_LONG, status=200 if fits else 400)

    far.answer = answer
    told = [("user", "q0"), ("user", "q1"), ("system", "summary"), ("user", "q2")]
    messages: list[Json] = [{"role": role, "content": content} for role, content in told]
    await respond(call(far, request={"model": "m", "messages": messages}, truncation="auto"))
    assert far.asked[-1][1]["messages"] == messages[2:]


async def test_one_turn_that_is_too_long_stays_so(far: Far) -> None:
    far.answer = whole(TOO_LONG, status=400)
    with pytest.raises(UpstreamRefused):
        await respond(call(far, truncation="auto"))


async def test_with_a_channel_a_stream_is_asked_for(far: Far) -> None:
    far.answer = streamed(STREAM)
    said = Said()
    await respond(call(far, said))
    ((_path, asked),) = far.asked
    assert (asked["stream"], asked["stream_options"]) == (True, {"include_usage": True})
    assert said.text.count(b"event: response.output_text.delta\n") == 2


CALLS = [{"id": "call_7", "type": "function", "function": {"name": "look", "arguments": "{}"}}]


@pytest.mark.parametrize("leading", [b"", b"\r\n\r\n ", b"\n\n"])
async def test_an_engine_that_does_not_stream_is_understood(far: Far, leading: bytes) -> None:
    """With a blank line in its midst, and in pieces."""
    message = {"role": "assistant", "content": "hello", "reasoning_content": "hm", "tool_calls": CALLS}
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    answer = {"choices": [{"finish_reason": "stop", "index": 0, "message": message}], "usage": usage}
    text = leading + json.dumps(answer).encode().replace(b'{"', b'{\n\n"')
    far.answer = streamed(*(text[place : place + 20] for place in range(0, len(text), 20)))
    said = Said()
    result = await respond(call(far, said))
    response = json.loads(result.value)  # type: ignore[arg-type]
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]
    assert response["output"][1]["content"][0]["text"] == "hello"
    assert response["output"][2]["call_id"] == "call_7"
    assert (response["usage"]["total_tokens"], result.usage) == (9, Usage(7, 2, 0))
    assert said.text.count(b"event: response.output_item.done\n") == 3


@pytest.mark.parametrize(
    ("body", "message"), [(b'{"error":{"message":"no room"}}', "no room"), (b'{"choices":[', "did not answer in JSON")]
)
async def test_what_is_neither_stream_nor_answer(far: Far, body: bytes, message: str) -> None:
    far.answer = streamed(body)
    with pytest.raises(EngineFailed, match=message):
        await respond(call(far, Said()))
