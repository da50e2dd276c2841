"""The hot routes' common path: what is counted, logged and answered when things go wrong on it."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from api.asgi import CLIENT_EXTENSION, Client, Message
from api.openai.endpoint import Checked, Endpoint, Resource
from api.openai.resources import RESOURCES
from api.run import Runner
from flows.execute import Executor
from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from tasks.types import Task, TaskCall, TaskResult
from tests.api.conftest import Front, StartFront
from workers.transport import Transport
from workers.types import Capability, Demand, ModelEntry

CHAT: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}


class Caller:
    """One request by a client that sends `messages` and may leave."""

    def __init__(self, key: str, body: Any = CHAT, *, messages: list[Message] | None = None) -> None:
        raw = json.dumps(body).encode()
        self._messages = messages or [{"type": "http.request", "body": raw, "more_body": False}]
        self.sent: list[Message] = []
        self.client = Client()
        self._headers = [(b"authorization", f"Bearer {key}".encode())]

    async def ask(self, endpoint: Endpoint) -> tuple[int, Any]:
        """Status and JSON; 0 and None where nothing was answered."""
        scope = {"path": "/x", "headers": self._headers, "extensions": {CLIENT_EXTENSION: self.client}}
        await endpoint(scope, self._receive, self._send)
        if not self.sent:
            return 0, None
        return self.sent[0]["status"], json.loads(b"".join(message["body"] for message in self.sent[1:]))

    async def _receive(self) -> Message:
        return self._messages.pop(0)

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def run(self) -> str:
        """The run that the answer names."""
        found: bytes = dict(self.sent[0]["headers"])[b"x-coderai-run"]
        return found.decode()


def planning(task: str, *, demand: bool = False) -> Resource:
    """A resource whose plan is one step of that task."""

    def plan(_body: dict[str, Json], entry: ModelEntry, _key: str | None) -> Plan:
        wanted = Demand(entry.name, Capability.CHAT) if demand else None
        return Plan("chat", entry.name, (Step(StepId("a"), TaskName(task), {}, {}, wanted),))

    return Resource(Capability.CHAT, lambda body, _entry: Checked(body), plan)


def requests(front: Front) -> dict[tuple[str, ...], float]:
    """Requests counted, by key, model, status and engine."""
    page = front.services.metrics.render().decode()
    (family,) = (each for each in text_string_to_metric_families(page) if each.name == "coderai_requests")
    labels = ("key", "model", "status", "engine")
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for sample in family.samples
        if sample.name == "coderai_requests_total"
    }


WithTask = Callable[[Front, Task], Endpoint]


@pytest.fixture
async def with_task() -> AsyncIterator[WithTask]:
    """An endpoint of a front, whose one task is the given one."""
    transport = Transport()

    def make(front: Front, task: Task) -> Endpoint:
        services = front.services
        runner = Runner(Executor({"own": task}, transport), services.fleet, services.active, None)
        return Endpoint(dataclasses.replace(services, runner=runner), planning("own", demand=True))

    yield make
    await transport.close()


async def broken(_call: TaskCall) -> TaskResult:
    raise ZeroDivisionError("a secret of ours")


async def test_a_bug_in_a_task_is_500_without_detail_in_the_log_and_counted(
    start_front: StartFront, with_task: WithTask, caplog: pytest.LogCaptureFixture
) -> None:
    front = await start_front()
    caller = Caller(front.keys["user"])
    status, body = await caller.ask(with_task(front, broken))
    assert (status, body["error"]["code"]) == (500, "internal_error")
    assert "secret" not in str(body)
    assert f"run {caller.run} failed" in caplog.text
    assert "a secret of ours" in caplog.text
    assert requests(front) == {("user", "tiny", "500", "cpu/tiny"): 1}
    assert front.services.accounting.active == 0
    assert front.services.fleet.engines()[0].in_flight == 0


async def test_a_bug_before_the_run_is_500_too(start_front: StartFront, caplog: pytest.LogCaptureFixture) -> None:
    front = await start_front()

    def check(_body: dict[str, Json], _entry: ModelEntry) -> Checked:
        raise KeyError("a secret of ours")

    resource = dataclasses.replace(RESOURCES["chat"], check=check)
    caller = Caller(front.keys["user"])
    status, body = await caller.ask(Endpoint(front.services, resource))
    assert (status, body["error"]["code"]) == (500, "internal_error")
    assert "secret" not in str(body)
    assert f"run {caller.run} failed" in caplog.text
    assert requests(front) == {("user", "tiny", "500", ""): 1}


async def test_a_refused_request_is_no_bug(start_front: StartFront, caplog: pytest.LogCaptureFixture) -> None:
    front = await start_front()
    endpoint = Endpoint(front.services, RESOURCES["embeddings"])
    status, body = await Caller(front.keys["user"]).ask(endpoint)
    assert (status, body["error"]["param"], body["error"]["code"]) == (400, "model", "unsupported_model")
    assert (await Caller("wrong").ask(endpoint))[0] == 401
    assert "failed" not in caplog.text
    assert requests(front) == {("user", "tiny", "400", ""): 1, ("anonymous", "unknown", "401", ""): 1}


@pytest.mark.parametrize("body", [{}, {"model": ""}, {"model": None}, {"model": ["tiny"]}, {"model": {"name": "tiny"}}])
async def test_a_request_that_names_no_model(start_front: StartFront, body: Any) -> None:
    front = await start_front()
    status, answer = await Caller(front.keys["user"], CHAT | {"model": None} | body).ask(
        Endpoint(front.services, RESOURCES["chat"])
    )
    assert (status, answer["error"]["param"]) == (400, "model")
    assert "GET /v1/models" in answer["error"]["message"]


async def test_a_client_that_leaves_before_its_request_is_there_is_counted(start_front: StartFront) -> None:
    front = await start_front()
    half: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    caller = Caller(front.keys["user"], messages=half)
    assert await caller.ask(Endpoint(front.services, RESOURCES["chat"])) == (0, None)
    assert requests(front) == {("user", "unknown", "499", ""): 1}
    assert front.services.accounting.active == 0


async def test_a_client_that_leaves_before_its_answer_is_counted(start_front: StartFront) -> None:
    front = await start_front(auth={"requests_in_flight": 1})
    asked = asyncio.Event()

    async def hang(_request: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(30)
        return web.Response()

    front.children.answer = hang
    endpoint = Endpoint(front.services, RESOURCES["chat"])
    caller = Caller(front.keys["user"])
    running = asyncio.create_task(caller.ask(endpoint))
    async with asyncio.timeout(5):
        await asked.wait()
        assert front.services.accounting.active == 1
        assert (await Caller(front.keys["user"]).ask(endpoint))[0] == 429
        caller.client.leave()
        assert await running == (0, None)
    assert requests(front)["user", "tiny", "499", "cpu/tiny"] == 1
    assert front.services.accounting.active == 0
    status, _body = await Caller(front.keys["user"], CHAT | {"model": "x"}).ask(endpoint)
    assert status == 404, "the key's place is free again"


async def test_nothing_new_is_begun_in_a_drain(start_front: StartFront) -> None:
    front = await start_front()
    front.services.fleet.draining = True
    status, body = await front.post("/v1/chat/completions", CHAT)
    assert (status, body["error"]["code"]) == (503, "draining")


async def test_who_waits_when_the_drain_ends_is_told(start_front: StartFront, with_task: WithTask) -> None:
    front, begun = await start_front(), asyncio.Event()

    async def hang(_call: TaskCall) -> TaskResult:
        begun.set()
        await asyncio.sleep(30)
        return TaskResult(b"")

    async def cut(*, draining: bool) -> tuple[int, Any]:
        begun.clear()
        waiting = asyncio.create_task(Caller(front.keys["user"]).ask(with_task(front, hang)))
        async with asyncio.timeout(5):
            await begun.wait()
            front.services.fleet.draining = draining
            waiting.cancel()
            return await waiting

    with pytest.raises(asyncio.CancelledError):
        await cut(draining=False)
    status, body = await cut(draining=True)
    assert (status, body["error"]["code"]) == (503, "draining")
    assert requests(front)["user", "tiny", "503", ""] == 1
    assert front.services.accounting.active == 0


@pytest.mark.parametrize("choice", [True, False])
async def test_a_conversation_has_a_key_only_where_there_is_a_choice(
    start_front: StartFront, monkeypatch: pytest.MonkeyPatch, choice: bool
) -> None:
    """Where a model can be in one place only, nothing is hashed for it."""
    front = await start_front()
    keys: list[str | None] = []

    def plan(_body: dict[str, Json], _entry: ModelEntry, key: str | None) -> Plan:
        keys.append(key)
        return planning("nothing").plan(_body, _entry, key)

    monkeypatch.setattr(front.services.fleet, "has_choice", lambda entry: choice and entry.name == "tiny")
    resource = dataclasses.replace(RESOURCES["chat"], plan=plan)
    await Caller(front.keys["user"], CHAT | {"user": "ann"}).ask(Endpoint(front.services, resource))
    assert keys == (["user:ann"] if choice else [None])
