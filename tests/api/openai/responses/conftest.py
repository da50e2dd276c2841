"""A front whose engine chats: it remembers what it was asked, and says the same whole or piece by piece."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from openai import AsyncOpenAI
from openai.types.responses import Response

from infra.response_events import ResponseEvents
from infra.response_rows import BackgroundResponses
from infra.types import ResponseId, RunId
from tasks.responses.answer import begun, response_of
from tasks.responses.events import Events
from tasks.responses.told import Told
from tests.api.beside_prefect import Flows, beside_prefect
from tests.api.conftest import Front, StartFront

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 2},
}


@dataclass
class ChattingEngine:
    """`deltas` are the pieces of the answer, each a chat's delta; `breaks_after` of them a stream is torn."""

    deltas: list[dict[str, Any]] = field(default_factory=lambda: [{"content": "Hel"}, {"content": "lo."}])
    finish_reason: str = "stop"
    breaks_after: int | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    refuse_over: int | None = None
    """Messages of which more are too long for the model."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        if self.refuse_over is not None and len(body["messages"]) > self.refuse_over:
            message = "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"
            error = {"code": 400, "type": "exceed_context_size_error", "message": message}
            return web.json_response({"error": error}, status=400)
        return await self._stream(request) if body.get("stream") else web.json_response(self._whole())

    def _whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        for delta in self.deltas:
            for name, value in delta.items():
                message[name] = value if message.get(name) is None else message[name] + value
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        return {"id": "c", "object": "chat.completion", "created": 1, "choices": [choice], "usage": USAGE}

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for place, delta in enumerate(self.deltas):
            if place == self.breaks_after:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(_event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
        await response.write(_event({"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish_reason}]}))
        await response.write(_event({"choices": [], "usage": USAGE}) + b"data: [DONE]\n\n")
        return response


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk"} | chunk).encode() + b"\n\n"


@dataclass
class Desk:
    """A front, its engine, and OpenAI's strict client of it."""

    front: Front
    engine: ChattingEngine
    clients: dict[str, AsyncOpenAI]
    """By the scope of their key."""

    @property
    def client(self) -> AsyncOpenAI:
        return self.clients["user"]


OpenDesk = Callable[..., Awaitable[Desk]]


@pytest.fixture
async def open_desk(start_front: StartFront) -> AsyncIterator[OpenDesk]:
    """Start a front whose engine is a `ChattingEngine`."""
    async with AsyncExitStack() as stack:

        async def open_one(**sections: Any) -> Desk:
            front = await start_front(**sections)
            engine = ChattingEngine()
            front.children.answer = engine.answer
            clients = {scope: await stack.enter_async_context(_client(front, scope)) for scope in front.keys}
            return Desk(front, engine, clients)

        yield open_one


def _client(front: Front, scope: str) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"{front.url}/v1",
        api_key=front.keys[scope],
        max_retries=0,
        timeout=20,
        _strict_response_validation=True,
    )


@pytest.fixture
async def flows(start_front: StartFront) -> AsyncIterator[Flows]:
    """A front beside a fake of Prefect's API."""
    async with beside_prefect(start_front) as both:
        yield both


@dataclass
class Background:
    """Responses in the background of a front whose jobs nobody carries out but the test."""

    flows: Flows
    clients: dict[str, AsyncOpenAI]

    @property
    def client(self) -> AsyncOpenAI:
        """With a key of the scope user."""
        return self.clients["user"]

    @property
    def rows(self) -> BackgroundResponses:
        """What the worker process tells of them."""
        return BackgroundResponses(self.flows.front.services.database)

    async def begun(self, **request: Any) -> Response:
        """A new one."""
        asked: dict[str, Any] = {"model": "tiny", "input": "hi", "background": True} | request
        made: Response = await self.client.responses.create(**asked)
        return made

    def run(self, response: str) -> dict[str, Any]:
        """Its flow run, as Prefect has it."""
        (found,) = [run for run in self.flows.prefect.runs.values() if f"response:{response}" in run["tags"]]
        return found

    @property
    def events(self) -> ResponseEvents:
        """What the worker process tells of them while it makes them."""
        return ResponseEvents(self.flows.front.settings.home)

    def telling(self, response: str) -> "Telling":
        """What the worker process does when it begins the job."""
        self.rows.begin(ResponseId(response), RunId(self.run(response)["id"]))
        return Telling(self, ResponseId(response))

    def answer(self, response: str, text: str = "Hello.") -> None:
        """What the worker process does when the job has its answer, of which it has told nothing before."""
        run = RunId(self.run(response)["id"])
        self.rows.begin(ResponseId(response), run)
        made = response_of(begun({}), {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})
        self.rows.answer(ResponseId(response), made)


class Telling:
    """A worker process that makes a response, as far as the test goes."""

    def __init__(self, background: Background, response: ResponseId) -> None:
        self._background = background
        self._response = response
        self._writer = background.events.write(response)
        self._told = Told()
        self.begin()

    def begin(self) -> None:
        """Ask an engine; once more, if one was asked before."""
        self._stream = Events(begun({}))
        self._tell(self._stream.begin())

    def say(self, *texts: str) -> None:
        """Pieces of its answer."""
        for text in texts:
            self._tell(self._stream.chunk({"choices": [{"index": 0, "delta": {"content": text}}]}))

    def answer(self, *, told: bool = True) -> None:
        """It is whole; not `told`: there was no room for that any more."""
        self._stream.chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        last = self._stream.finish()
        if told:
            self._tell(last)
        self._background.rows.answer(self._response, self._stream.end()[0])
        self._writer.close(over=True)

    def die(self) -> None:
        """End without a word."""
        self._writer.close(over=False)

    def _tell(self, events: bytes) -> None:
        self._writer.append(self._told.lines(events))


@pytest.fixture
async def background(flows: Flows) -> AsyncIterator[Background]:
    """Responses in the background."""
    async with AsyncExitStack() as stack:
        scopes = flows.front.keys
        yield Background(flows, {each: await stack.enter_async_context(_client(flows.front, each)) for each in scopes})
