"""A front with a model here and one far away, whose one engine says the same whole or piece by piece."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from tests.api.conftest import Front, StartFront

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@dataclass
class Engine:
    """`deltas` are the pieces of each of its answers; the stream is torn after `breaks_after` of them, and waits for
    `go_on` before its end; an engine that `streams` not answers whole all the same."""

    deltas: list[dict[str, Any]] = field(default_factory=lambda: [{"content": "Hel"}, {"content": "lo."}])
    finish_reason: str = "stop"
    breaks_after: int | None = None
    error: str | None = None
    streams: bool = True
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.go_on.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        if body.get("stream") and self.streams:
            return await self._stream(request, body)
        if self.error is not None:
            return web.json_response({"error": {"message": self.error}})  # some services say so with status 200
        message = {"role": "assistant", "refusal": None, "content": "".join(each["content"] for each in self.deltas)}
        choices = [
            {"index": index, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
            for index in range(body.get("n") or 1)
        ]
        head = {"id": "theirs", "object": "chat.completion", "created": 7, "model": body["model"]}
        return web.json_response(head | {"choices": choices, "usage": USAGE, "timings": {"prompt_n": 7}})

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        head = {"id": "theirs", "object": "chat.completion.chunk", "created": 7, "model": body["model"]}

        async def say(**more: Any) -> None:
            await response.write(b"data: " + json.dumps(head | more).encode() + b"\n\n")

        for place, delta in enumerate(self.deltas):
            if place == self.breaks_after:
                assert request.transport is not None
                request.transport.abort()
                return response
            await say(choices=[{"index": 0, "delta": delta, "finish_reason": None}])
        await self.go_on.wait()
        if self.error is not None:
            await say(error={"message": self.error})
        timings = {"prompt_n": 7, "cache_n": 0, "predicted_n": 3}
        await say(choices=[{"index": 0, "delta": {}, "finish_reason": self.finish_reason}], timings=timings)
        if (body.get("stream_options") or {}).get("include_usage"):
            await say(choices=[], usage=USAGE)
        await response.write(b"data: [DONE]\n\n")
        return response


@dataclass
class Desk:
    """A front, its engine, and OpenAI's strict client of it by the scope of each key."""

    front: Front
    engine: Engine
    clients: dict[str, AsyncOpenAI]

    @property
    def client(self) -> AsyncOpenAI:
        return self.clients["user"]

    async def made(self, scope: str = "user", **request: Any) -> ChatCompletion:
        """A stored one."""
        asked: dict[str, Any] = {"model": "tiny", "messages": HELLO, "store": True} | request
        completion: ChatCompletion = await self.clients[scope].chat.completions.create(**asked)
        return completion

    async def listed(self, scope: str = "user", **query: Any) -> list[str]:
        """The ids of one page."""
        return [each.id for each in (await self.clients[scope].chat.completions.list(**query)).data]


OpenDesk = Callable[[], Awaitable[Desk]]


@pytest.fixture
async def open_desk(start_front: StartFront, tiny_model: Path) -> AsyncIterator[OpenDesk]:
    """Start one."""
    async with AsyncExitStack() as stack:

        async def open_one() -> Desk:
            engine = Engine()
            far = await stack.enter_async_context(TestServer(_service(engine)))
            front = await start_front(
                [
                    {"name": "tiny", "aliases": ["gpt-4o"], "path": str(tiny_model), "max_instances": 2},
                    {"name": "far", "service_url": str(far.make_url("/v1")), "served_model": "theirs"},
                ]
            )
            front.children.answer = engine.answer
            clients = {scope: await stack.enter_async_context(_client(front, scope)) for scope in front.keys}
            return Desk(front, engine, clients)

        yield open_one


def _service(engine: Engine) -> web.Application:
    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "theirs", "object": "model"}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", engine.answer)
    return app


def _client(front: Front, scope: str) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"{front.url}/v1",
        api_key=front.keys[scope],
        max_retries=0,
        timeout=20,
        _strict_response_validation=True,
    )
