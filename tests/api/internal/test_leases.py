"""Leases over a WebSocket: given, refused, and never longer than their holder lives."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families

from infra.errors import Draining, ModelNotFound, QueueFull, ServiceDown
from infra.types import EngineId, KeyName, ModelName, PoolId, RunId
from infra.usage import list_usage
from tests.api.conftest import TOKEN, Front, StartFront
from workers.bounds import Order, Orders
from workers.refused import rebuilt
from workers.types import Capability, Demand
from workers.wire import LeaseAsk, LeaseGiven, LeaseOver, LeaseRefused

pytestmark = pytest.mark.enable_socket

Socket = aiohttp.ClientWebSocketResponse


@asynccontextmanager
async def opened(front: Front) -> AsyncIterator[Socket]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with front.session.ws_connect(front.url + "/internal/leases", headers=headers) as socket:
        yield socket


def question(model: str = "tiny", **fields: Any) -> str:
    ask = LeaseAsk(
        run=RunId("r"),
        step="generate",
        flow="chat",
        key=KeyName("ann"),
        model=ModelName(model),
        demand=Demand(ModelName(model), Capability.CHAT),
        **fields,
    )
    return ask.model_dump_json()


async def given(socket: Socket, model: str = "tiny", **fields: Any) -> LeaseGiven:
    await socket.send_str(question(model, **fields))
    return LeaseGiven.model_validate_json(await socket.receive_str(timeout=20))


async def refused(socket: Socket, text: str) -> LeaseRefused:
    await socket.send_str(text)
    answer = LeaseRefused.model_validate_json(await socket.receive_str(timeout=20))
    assert (await socket.receive(timeout=20)).type is aiohttp.WSMsgType.CLOSE
    return answer


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


def in_flight(front: Front) -> int:
    return sum(engine.in_flight for engine in front.services.fleet.engines())


async def test_a_slot_with_all_that_a_task_needs_until_the_step_is_over(start_front: StartFront) -> None:
    front = await start_front()
    async with opened(front) as socket:
        lease = await given(socket)
        engine = front.services.fleet.engines()[0]
        assert (lease.engine, lease.pool, lease.incarnation) == (engine.id, PoolId("cpu"), 1)
        assert (lease.base_url, lease.headers, lease.slots) == (engine.base_url, engine.headers, 2)
        assert lease.entry == engine.entry
        assert lease.placement.reason == "resident"
        async with front.session.post(f"{lease.base_url}/chat/completions", json={}, headers=lease.headers) as answer:
            assert answer.status == 200
        assert in_flight(front) == 1
        await socket.send_str(LeaseOver(prompt_tokens=3, completion_tokens=2).model_dump_json())
        assert (await socket.receive(timeout=20)).type is aiohttp.WSMsgType.CLOSE
        assert in_flight(front) == 0
    assert engine.state == "ready"


async def test_what_a_step_used_is_its_key_s(start_front: StartFront) -> None:
    front = await start_front()
    for tried in ((), ((EngineId("gone/tiny"), 1),)):
        async with opened(front) as socket:
            await given(socket, tried=tried)
            await socket.send_str(LeaseOver(prompt_tokens=3, completion_tokens=2).model_dump_json())
            await socket.receive(timeout=20)
    await front.services.accounting.flush()
    (row,) = list_usage(front.services.database, first_day=date.min, last_day=date.max)
    assert (row.key_name, row.model, row.kind) == ("ann", "tiny", "chat")
    assert (row.requests, row.prompt_tokens, row.completion_tokens) == (0, 6, 4)
    assert row.seconds > 0
    counted = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(front.services.metrics.render().decode())
        for sample in family.samples
    }
    labels = (("direction", "prompt"), ("key", "ann"), ("model", "tiny"))
    assert counted["coderai_tokens_total", *labels] == 6
    assert counted["coderai_step_retries_total", ("model", "tiny")] == 1
    assert counted["coderai_queue_wait_seconds_count", ("model", "tiny")] == 2
    assert not any(name == "coderai_requests_total" for name, *_labels in counted)


@pytest.mark.parametrize("end", ["close", "abort", "nonsense"])
async def test_a_holder_that_is_gone_holds_nothing(start_front: StartFront, end: str) -> None:
    front = await start_front()
    async with opened(front) as socket:
        await given(socket)
        assert in_flight(front) == 1
        if end == "nonsense":
            await socket.send_str("thanks")
        elif end == "abort":
            socket._response.connection.transport.abort()  # type: ignore[union-attr]
        else:
            await socket.close()
        await until(lambda: in_flight(front) == 0)
    assert front.services.fleet.engines()[0].state == "ready"


async def test_who_leaves_while_it_waits_is_forgotten(start_front: StartFront) -> None:
    front = await start_front()
    async with opened(front) as one, opened(front) as two, opened(front) as early, opened(front) as late:
        await given(one)
        await given(two)
        fleet = front.services.fleet
        for count, socket in enumerate((early, late), 1):
            await socket.send_str(question())
            await until(lambda count=count: fleet.waiting(ModelName("tiny")) == count)  # type: ignore[misc]
        await early.close()
        await until(lambda: fleet.waiting(ModelName("tiny")) == 1)
        await one.send_str(LeaseOver().model_dump_json())
        LeaseGiven.model_validate_json(await late.receive_str(timeout=20))
        assert in_flight(front) == 2
    await until(lambda: in_flight(front) == 0)


async def test_who_leaves_in_the_moment_in_which_its_slot_comes_takes_none_along(start_front: StartFront) -> None:
    front = await start_front()
    async with opened(front) as warm:
        await given(warm)
    for pause_s in (0.0, 0.0001, 0.0005, 0.001, 0.002, 0.005):
        for _ in range(5):
            async with opened(front) as socket:
                await socket.send_str(question())
                await asyncio.sleep(pause_s)
    await until(lambda: in_flight(front) == 0)
    assert front.services.fleet.waiting(ModelName("tiny")) == 0


async def test_a_step_that_failed_sends_its_engine_to_the_doctor(start_front: StartFront) -> None:
    front = await start_front()
    async with opened(front) as socket:
        await given(socket)
        engine = front.services.fleet.engines()[0]
        front.children.slow_s = 0.3
        await socket.send_str(LeaseOver(failed=True).model_dump_json())
        await until(lambda: engine.state == "loading")
    await until(lambda: engine.state == "ready")
    assert in_flight(front) == 0


async def test_a_refusal_is_the_error_that_it_was(start_front: StartFront, tiny_model: Any) -> None:
    dead = {"name": "dead", "service_url": "http://127.0.0.1:9"}
    front = await start_front([dead, {"name": "tiny", "path": str(tiny_model)}])
    async with opened(front) as socket:
        assert type(rebuilt(await refused(socket, question("nope")))) is ModelNotFound
    async with opened(front) as socket:
        assert type(rebuilt(await refused(socket, question("dead")))) is ServiceDown
    front.services.fleet.bounds.obey(Orders({PoolId("head"): Order(paused="paused by hand")}))
    async with opened(front) as socket:
        error = rebuilt(await refused(socket, question()))
        assert "paused by hand" in error.message
        assert error.retry_after_s == 10
    front.services.fleet.draining = True
    async with opened(front) as socket:
        assert type(rebuilt(await refused(socket, question()))) is Draining


async def test_a_full_queue_is_full_for_both_lanes(start_front: StartFront, tiny_model: Any) -> None:
    front = await start_front(
        [{"name": "tiny", "path": str(tiny_model), "max_instances": 1, "queue_max_waiting": 0}], server={"port": 0}
    )
    async with opened(front) as one, opened(front) as two:
        await given(one)
        assert type(rebuilt(await refused(two, question()))) is QueueFull
        status, answer = await front.post("/v1/chat/completions", {"model": "tiny", "messages": [_MESSAGE]})
        assert (status, answer["error"]["code"]) == (503, "queue_full")


async def test_a_limit_bounds_the_sum_of_both_lanes(start_front: StartFront) -> None:
    front = await start_front()
    running = asyncio.Event()
    go_on = asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        running.set()
        await go_on.wait()
        return web.json_response({"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}]})

    front.children.answer = answer
    front.services.fleet.bounds.obey(Orders({PoolId("cpu"): Order(limit=1)}))
    client = asyncio.create_task(front.post("/v1/chat/completions", {"model": "tiny", "messages": [_MESSAGE]}))
    await asyncio.wait_for(running.wait(), 5)
    async with opened(front) as socket:
        await socket.send_str(question())
        with pytest.raises(TimeoutError):
            await socket.receive_str(timeout=0.1)
    async with opened(front) as socket:
        await socket.send_str(question())
        await until(lambda: front.services.fleet.waiting(ModelName("tiny")) == 1)
        go_on.set()
        LeaseGiven.model_validate_json(await socket.receive_str(timeout=20))
        assert (await client)[0] == 200
        second = asyncio.create_task(front.post("/v1/chat/completions", {"model": "tiny", "messages": [_MESSAGE]}))
        await until(lambda: front.services.fleet.waiting(ModelName("tiny")) == 1)
        assert in_flight(front) == 1
        await socket.send_str(LeaseOver().model_dump_json())
        assert (await second)[0] == 200
    assert in_flight(front) == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"model": "tiny"}), "\x00"])
async def test_what_is_no_question_is_refused(start_front: StartFront, text: str) -> None:
    front = await start_front()
    async with opened(front) as socket:
        assert (await refused(socket, text)).error == "InvalidRequest"


async def test_who_says_nothing_at_all_harms_nobody(start_front: StartFront) -> None:
    front = await start_front()
    async with opened(front):
        pass
    assert in_flight(front) == 0


async def test_a_far_service_s_key_is_in_the_headers_alone(start_front: StartFront) -> None:
    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"data": []})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    async with TestServer(app) as server:
        url = str(server.make_url("/v1"))
        front = await start_front([{"name": "far", "service_url": url, "api_key": "sk-far"}])
        async with opened(front) as socket:
            await socket.send_str(question("far"))
            text = await socket.receive_str(timeout=20)
        lease = LeaseGiven.model_validate_json(text)
        assert text.count("sk-far") == 1
        assert lease.headers["Authorization"] == "Bearer sk-far"
        assert lease.entry.api_key is None


async def test_a_mistake_of_ours_is_logged_and_told_to_nobody(
    start_front: StartFront, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    front = await start_front()

    async def broken(*_args: Any) -> Any:
        raise ZeroDivisionError("the secret")

    monkeypatch.setattr(front.services.fleet, "acquire", broken)
    async with opened(front) as socket:
        answer = await refused(socket, question())
    assert answer.error == "Bug"
    assert "secret" not in answer.message
    assert "the secret" in caplog.text


_MESSAGE = {"role": "user", "content": "hi"}
