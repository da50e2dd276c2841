"""One run for one client: whatever happens to it is recorded once, and told to whoever still listens."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from api.asgi import CLIENT_EXTENSION, Client, Exchange, Message
from api.run import Order, Outcome, run_headers
from flows.chat import plan_chat
from infra.errors import RunCancelled
from infra.tokens import Key
from infra.types import Json, KeyName, RunId
from tests.api.conftest import Front, StartFront

RUN = RunId("8f6c1d2e-0000-4000-8000-000000000000")


class Caller:
    """The client's side of an exchange."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.client = Client()
        scope = {"path": "/x", "headers": [], "extensions": {CLIENT_EXTENSION: self.client}}
        self.exchange = Exchange(scope, self.receive, self.send)

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def run(self, front: Front, *, stream: bool = False) -> Outcome:
        entry = front.services.shelf.catalogue.get("tiny")
        body: dict[str, Json] = {"messages": [], "stream": stream}
        plan = plan_chat(body, entry, None)
        order = Order(RUN, plan, entry, Key(KeyName("ann"), "user"), json.dumps(body, indent=1).encode(), stream)
        return await front.services.runner.run(self.exchange, order)


def spooled(front: Front) -> list[dict[str, Any]]:
    files: list[Path] = sorted(front.settings.at("spool").iterdir())
    lines = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    return [line for line in lines if line["kind"] == "run"]


async def hang(_request: web.Request) -> web.Response:
    await asyncio.sleep(30)
    return web.Response()


async def broken(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def until_busy(front: Front) -> None:
    async with asyncio.timeout(5):
        while not any(engine.in_flight for engine in front.services.fleet.engines()):
            await asyncio.sleep(0.01)


async def test_an_answer_and_its_record(start_front: StartFront) -> None:
    front, caller = await start_front(), Caller()
    outcome = await caller.run(front)
    assert outcome.unanswered is None
    start, _body = caller.sent
    assert start["status"] == 200
    assert (b"x-coderai-run", RUN.encode()) in start["headers"]
    assert (b"x-coderai-engine", b"cpu/tiny") in start["headers"]
    (record,) = spooled(front)
    assert (record["id"], record["key"], record["status"], record["error"]) == (RUN, "ann", "completed", None)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_byte_is_the_caller_s_to_answer(start_front: StartFront, stream: bool) -> None:
    front, caller = await start_front(), Caller()
    front.children.answer = broken
    outcome = await caller.run(front, stream=stream)
    assert outcome.unanswered is not None
    assert caller.sent == []
    (record,) = spooled(front)
    assert record["status"] == "failed"
    assert record["error"] == str(outcome.unanswered)


async def test_a_client_that_leaves_ends_its_run_and_not_the_task(start_front: StartFront) -> None:
    front, caller = await start_front(), Caller()
    front.children.answer = hang

    async def serve() -> tuple[Outcome, int]:
        outcome = await caller.run(front)
        task = asyncio.current_task()
        assert task is not None
        return outcome, task.cancelling()

    running = asyncio.create_task(serve())
    await until_busy(front)
    caller.client.leave()
    outcome, cancelling = await running
    assert cancelling == 0  # the task's later timeouts must not take it for a cancellation from outside
    assert outcome.unanswered is None
    assert caller.sent == []
    assert not front.services.fleet.engines()[0].in_flight
    (record,) = spooled(front)
    assert (record["status"], record["error"]) == ("cancelled", "cancelled: the client left")


async def test_a_process_that_ends_ends_the_task_and_still_records(start_front: StartFront) -> None:
    front, caller = await start_front(), Caller()
    front.children.answer = hang
    running = asyncio.create_task(caller.run(front))
    await until_busy(front)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (record,) = spooled(front)
    assert (record["status"], record["error"]) == ("cancelled", "the front was stopped while it ran")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_run_frees_its_slot_and_is_answered(start_front: StartFront, stream: bool) -> None:
    front, caller = await start_front(), Caller()
    front.children.answer = hang
    running = asyncio.create_task(caller.run(front, stream=stream))
    await until_busy(front)
    assert front.services.active.cancel(RUN)
    outcome = await running
    assert isinstance(outcome.unanswered, RunCancelled)
    assert not front.services.fleet.engines()[0].in_flight
    (record,) = spooled(front)
    assert (record["status"], record["error"]) == ("cancelled", outcome.unanswered.message)
    assert not front.services.active.cancel(RUN)


async def test_the_request_of_a_run_is_kept_on_one_line(start_front: StartFront) -> None:
    front, caller = await start_front(), Caller()
    await caller.run(front)
    (record,) = spooled(front)
    assert record["payload"] == {"request": {"messages": [], "stream": False}, "blob": None, "steps": {}}


def test_headers_of_a_run() -> None:
    assert run_headers(RUN, "") == [(b"x-coderai-run", RUN.encode())]
    assert run_headers(RUN, "cpu/mödel\n")[1][1].isascii()
