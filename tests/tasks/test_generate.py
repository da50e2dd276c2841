"""Asking an engine: whole answers and streams, put right and renamed, and every way in which an engine breaks off."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.errors import EngineFailed, ModelLoading, UpstreamRefused
from infra.types import EngineId, Json, PoolId
from tasks.generate import ask, generate
from tasks.types import TaskCall, TaskResult, Usage
from tests.fakes import Handler, make_entry
from tests.tasks.said import Said
from workers.live import Engine
from workers.transport import Transport
from workers.types import ModelFormat

pytestmark = pytest.mark.enable_socket

CHAT = "/chat/completions"
HELLO: dict[str, Json] = {"messages": [{"role": "user", "content": "hi"}], "model": "m"}
COUNTS: dict[str, Json] = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
SPOKEN = b'{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"hello"}}],'
"""An answer's head, as llama.cpp writes it."""


class Far:
    """An engine that is a server on this loop; `answer` handles what it is asked, `asked` and `peers` keep it."""

    def __init__(self) -> None:
        self.answer: Handler = whole(b"{}")
        self.asked: list[tuple[str, Any]] = []
        self.peers: list[object] = []
        self.transport = Transport()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        self.peers.append(request.transport.get_extra_info("peername"))
        self.asked.append((request.path, await request.json()))
        return await self.answer(request)

    def local(self, **props: Json) -> Engine:
        return Engine(EngineId("cpu/m"), make_entry("m"), PoolId("cpu"), True, 1, self.url, props=props)

    def service(self, served: str | None = "org/far") -> Engine:
        entry = make_entry("m", format=ModelFormat.SERVICE, path=None, service_url="http://box", served_model=served)
        return Engine(EngineId("service:box/m"), entry, PoolId("service:box"), False, 1, self.url)

    async def run(self, engine: Engine, request: dict[str, Json], said: Said | None = None) -> TaskResult:
        return await generate(TaskCall({"path": CHAT, "request": request}, self.transport, engine, said))


@pytest.fixture
async def far() -> AsyncIterator[Far]:
    made = Far()
    app = web.Application()
    app.router.add_post("/v1/{path:.*}", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.url = str(server.make_url("/v1"))
        yield made
        await made.transport.close()


def whole(body: bytes, status: int = 200) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, status=status, content_type="application/json")

    return answer


def streamed(*pieces: bytes, breaks: bool = False) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.005)  # each piece a read of its own
        if breaks:
            abort(request)
        return response

    return answer


def abort(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


def event(**chunk: Json) -> bytes:
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def word(text: str, **fields: Json) -> bytes:
    return event(model="org/far", choices=[{"index": 0, "delta": {"content": text}}], **fields)


DONE = b"data: [DONE]\n\n"


async def test_a_whole_answer(far: Far) -> None:
    far.answer = whole(b'{"object":"text_completion","usage":%s}' % json.dumps(COUNTS).encode())
    call = TaskCall({"path": "/completions", "request": {"prompt": "a", "max_tokens": 3}}, far.transport, far.local())
    result = await generate(call)
    assert result[:2] == (b'{"object":"text_completion","usage":%s}' % json.dumps(COUNTS).encode(), Usage(7, 2, 0))
    assert far.asked == [("/v1/completions", {"prompt": "a", "max_tokens": 3, "model": "m"})]


async def test_a_chat_answer_of_ours_has_what_openai_s_schema_demands(far: Far) -> None:
    far.answer = whole(SPOKEN + b'"usage":%s}' % json.dumps(COUNTS).encode())
    result = await far.run(far.local(), HELLO)
    assert isinstance(result.value, bytes)
    (choice,) = json.loads(result.value)["choices"]
    assert (choice["logprobs"], choice["message"]["refusal"]) == (None, None)
    assert result.usage == Usage(7, 2, 0)


async def test_a_far_answer_comes_as_it_is_but_for_its_model(far: Far) -> None:
    body = b'{"model": "org/far", "choices":[{"index":0,"message":{"role":"assistant","content":"org/far"}}]}'
    far.answer = whole(body)
    renamed = body.replace(b'"model": "org/far"', b'"model":"m"')
    assert (await far.run(far.service(), HELLO)).value == renamed
    assert far.asked[-1][1]["model"] == "org/far"
    assert (await far.run(far.service(served=None), HELLO)).value == body
    assert far.asked[-1][1]["model"] == "m"


async def test_the_request_stays_the_client_s(far: Far) -> None:
    """It is the plan's: what this engine calls its model, and how it must be asked, is nobody else's business."""
    request: dict[str, Json] = copy.deepcopy(HELLO | {"stream": True})
    before = copy.deepcopy(request)
    far.answer = streamed(word("a"), DONE)
    await far.run(far.service(), request, Said())
    await far.run(far.local(chat_template_caps={"supports_tools": False}), request | {"logprobs": True}, Said())
    far.answer = whole(b"{}")
    plain = copy.deepcopy(HELLO)
    await far.run(far.service(), plain)
    assert far.asked[-1][1]["model"] == "org/far"
    assert (plain, request) == (HELLO, before)
    assert far.asked[0][1] == before | {"model": "org/far", "stream_options": {"include_usage": True}}


async def test_a_stream_of_ours_passes_as_it_comes(far: Far) -> None:
    pieces = [word("one"), word("two")[:20], word("two")[20:], event(choices=[], timings={"prompt_n": 3}) + DONE]
    far.answer = streamed(*pieces)
    said = Said()
    result = await far.run(far.local(), HELLO | {"stream": True}, said)
    assert said.text == b"".join(pieces)
    assert len(said.pieces) > 1
    assert result[:2] == (b"", Usage(3, 0, 0))
    assert "stream_options" not in far.asked[0][1]


async def test_a_stream_of_ours_is_put_right(far: Far) -> None:
    """llama.cpp sends alternatives where none was asked for; an answer put right counts the tokens it had."""
    logprobs: Json = {"content": [{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": [{"token": "b"}]}]}
    choice: Json = {"index": 0, "delta": {"content": "a"}, "logprobs": logprobs}
    far.answer = streamed(event(choices=[choice]), event(choices=[], timings={"predicted_n": 5}), DONE)
    said = Said()
    result = await far.run(far.local(), HELLO | {"stream": True, "logprobs": True}, said)
    first = json.loads(said.text.split(b"\n\n")[0].removeprefix(b"data: "))
    assert first["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    assert said.text.endswith(DONE)
    assert result.usage == Usage(0, 5, 0)


async def test_a_whole_answer_of_ours_is_put_right(far: Far) -> None:
    """The same, and where the answer is asked for in a form of its own, it is still a whole one for the client."""
    far.answer = streamed(
        event(choices=[{"index": 1, "delta": {"content": "b"}, "finish_reason": None}], id="x"),
        event(choices=[{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}], id="x"),
        event(choices=[{"index": 1, "delta": {}, "finish_reason": "stop"}], id="x"),
        DONE,
    )
    result = await far.run(far.local(), HELLO | {"n": 2})
    assert isinstance(result.value, bytes)
    answer = json.loads(result.value)
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["a", "b"]
    assert far.asked[0][1]["stream"] is True


FAR_STREAM = word("one") + word("two") + event(model="org/far", choices=[], usage=COUNTS) + DONE
OURS = FAR_STREAM.replace(b"org/far", b"m")


@pytest.mark.parametrize("size", [7, 31, len(FAR_STREAM) - 1, len(FAR_STREAM)])
@pytest.mark.parametrize("hidden", [True, False])
async def test_a_far_stream_cut_anywhere(far: Far, size: int, hidden: bool) -> None:
    """Its usage is asked for, counted, and taken out again unless the client has asked for it, too."""
    far.answer = streamed(*(FAR_STREAM[at : at + size] for at in range(0, len(FAR_STREAM), size)))
    said = Said()
    options: dict[str, Json] = {} if hidden else {"stream_options": {"include_usage": True}}
    result = await far.run(far.service(), HELLO | {"stream": True} | options, said)
    assert result.usage == Usage(7, 2, 0)
    assert far.asked[0][1]["stream_options"] == {"include_usage": True}
    usage_event = event(model="m", choices=[], usage=COUNTS)
    assert usage_event in OURS
    assert said.text == (OURS.replace(usage_event, b"") if hidden else OURS)


async def test_a_far_stream_without_usage_has_none(far: Far) -> None:
    far.answer = streamed(word("one"), DONE)
    assert (await far.run(far.service(), HELLO | {"stream": True}, Said())).usage is None


async def test_a_far_stream_that_ends_in_mid_event_is_passed_on_to_the_end(far: Far) -> None:
    far.answer = streamed(word("one") + word("two")[:-9])
    said = Said()
    await far.run(far.service(), HELLO | {"stream": True}, said)
    assert said.text == word("one").replace(b"org/far", b"m") + word("two")[:-9].replace(b"org/far", b"m")


Breaking = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def half_a_body(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(SPOKEN)
    abort(request)
    return response


async def before_its_head(request: web.Request) -> web.StreamResponse:
    abort(request)
    return web.Response()


async def half_a_refusal(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(status=400, headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"error":')
    abort(request)
    return response


@pytest.mark.parametrize("breaking", [before_its_head, half_a_body, half_a_refusal, streamed(b"{", breaks=True)])
async def test_an_engine_that_breaks_off(far: Far, breaking: Breaking) -> None:
    far.answer = breaking
    with pytest.raises(EngineFailed, match=r"^cpu/m (broke off its answer|did not answer): .+"):
        await far.run(far.local(), HELLO)
    with pytest.raises(EngineFailed, match=r"^cpu/m (broke off its answer|did not answer): .+"):
        await ask(TaskCall({}, far.transport, far.local()), "/rerank", {})


async def test_an_engine_that_breaks_off_in_a_stream(far: Far) -> None:
    far.answer = streamed(word("one"), breaks=True)
    said = Said()
    with pytest.raises(EngineFailed, match=r"^cpu/m broke off its answer: "):
        await far.run(far.local(), HELLO | {"stream": True}, said)
    assert said.text == word("one")


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b'{"error":{"message":"bad top_k","param":"top_k"}}', UpstreamRefused),
        (404, b"no such page", EngineFailed),
        (500, b'{"error":{"message":"oh"}}', EngineFailed),
        (503, b'{"error":{"message":"Loading","type":"unavailable_error"}}', ModelLoading),
        (401, b"{}", EngineFailed),
        (302, b"", EngineFailed),
    ],
)
async def test_a_refusal_is_raised_and_nothing_is_sent(far: Far, status: int, body: bytes, kind: type) -> None:
    far.answer = whole(body, status)
    said = Said()
    with pytest.raises(kind) as caught:
        await far.run(far.local(), HELLO | {"stream": True}, said)
    assert type(caught.value) is kind
    assert not said.started


async def test_a_refusal_in_pieces_is_read_whole(far: Far) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=400)
        await response.prepare(request)
        for piece in (b'{"error":', b'{"message":', b'"bad top_k"}}'):
            await response.write(piece)
            await asyncio.sleep(0.005)
        return response

    far.answer = refuse
    with pytest.raises(UpstreamRefused, match=r"^bad top_k$"):
        await far.run(far.local(), HELLO)


async def test_the_connection_of_a_whole_answer_serves_the_next(far: Far) -> None:
    await far.run(far.local(), HELLO)
    far.answer = whole(b'{"error":{"message":"no"}}', 400)
    with pytest.raises(UpstreamRefused):
        await far.run(far.local(), HELLO)
    far.answer = streamed(word("one"), DONE)
    await far.run(far.local(), HELLO | {"stream": True}, Said())
    await far.run(far.local(), HELLO | {"stream": True}, Said())
    assert len(set(far.peers)) == 1


async def test_the_connection_of_a_refusal_too_long_to_read_is_closed(far: Far) -> None:
    far.answer = whole(b'{"error":{"message":"no"}}' + b" " * 2**22, 400)
    with pytest.raises(UpstreamRefused):
        await far.run(far.local(), HELLO)
    far.answer = whole(b"{}")
    await far.run(far.local(), HELLO)
    assert len(set(far.peers)) == 2


async def test_who_is_cancelled_in_mid_answer_stops_the_engine(far: Far) -> None:
    """The connection is closed, which is how an engine learns that nobody waits any more."""
    stopped = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(word("on"))
                await asyncio.sleep(0.005)
        finally:
            stopped.set()

    far.answer = endless
    said = Said()
    running = asyncio.create_task(far.run(far.local(), HELLO | {"stream": True}, said))
    async with asyncio.timeout(5):
        while not said.started:
            await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await stopped.wait()
    assert running.cancelled()


async def test_a_question_and_its_answer_as_an_object(far: Far) -> None:
    far.answer = whole(b'{"results":[],"usage":{"prompt_tokens":4,"total_tokens":4}}')
    question: dict[str, Json] = {"query": "q"}
    answer, usage = await ask(TaskCall({}, far.transport, far.service()), "/rerank", question)
    assert answer["results"] == []
    assert usage == Usage(4, 0, 0)
    assert far.asked == [("/v1/rerank", {"query": "q", "model": "org/far"})]
    assert question == {"query": "q"}


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"null", b'{"a":'])
async def test_a_question_that_is_answered_in_another_language(far: Far, body: bytes) -> None:
    far.answer = whole(body)
    with pytest.raises(EngineFailed, match=r"^cpu/m did not answer "):
        await ask(TaskCall({}, far.transport, far.local()), "/rerank", {})
