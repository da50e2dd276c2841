"""What clients meet at the edge: keys, errors, limits, queues; on real sockets."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from infra.tokens import revoke_key
from tests.api.conftest import StartFront

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
PATH = "/v1/chat/completions"


async def answer_once(_request: web.Request) -> web.Response:
    return web.json_response(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
        }
    )


async def test_an_answer_names_its_run_and_engine(start_front: StartFront) -> None:
    front = await start_front()
    front.children.answer = answer_once
    async with front.session.post(front.url + PATH, json=CHAT, headers=front.headers()) as answer:
        body = await answer.json()
    assert answer.status == 200
    assert body["choices"][0]["message"]["content"] == "hello"
    assert len(answer.headers["X-Coderai-Run"]) == 36
    assert answer.headers["X-Coderai-Engine"] == "cpu/tiny"


@pytest.mark.parametrize("path", [PATH, "/v1/models", "/v1/plan", "/nowhere", "/openapi.json", "/metrics", "/docs"])
@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic abc"}])
async def test_everything_is_closed_without_a_key(start_front: StartFront, path: str, header: dict[str, str]) -> None:
    front = await start_front()
    async with front.session.post(front.url + path, json=CHAT, headers=header) as answer:
        if answer.status == 405:  # a GET route: the method is looked at first by the framework
            answer = await front.session.get(front.url + path, headers=header)  # noqa: PLW2901
        body = await answer.json()
    assert answer.status == 401
    assert body["error"]["code"] in ("missing_api_key", "invalid_api_key")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_scopes(start_front: StartFront) -> None:
    front = await start_front()
    front.children.answer = answer_once
    assert (await front.post(PATH, CHAT, "node"))[0] == 200
    status, body = await front.get("/admin/api/engines", "user")
    assert (status, body["error"]["code"]) == (403, "insufficient_scope")
    assert (await front.get("/admin/api/engines", "admin"))[0] == 200


async def test_an_unknown_model_is_404_with_near_names(start_front: StartFront) -> None:
    front = await start_front()
    status, body = await front.post(PATH, CHAT | {"model": "tny"})
    assert status == 404
    assert body["error"]["message"].startswith("Model 'tny' is not available; did you mean 'tiny'?")
    assert body["error"]["code"] == "model_not_found"
    assert body["error"]["param"] == "model"


async def test_an_alias_serves(start_front: StartFront) -> None:
    front = await start_front()
    front.children.answer = answer_once
    assert (await front.post(PATH, CHAT | {"model": "gpt-4o"}))[0] == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b"\xff\xfe", "not JSON"),
        (b"", "not JSON"),
        (b'{"messages": []}', "you must provide a model"),
        (b'{"model": 7}', "you must provide a model"),
        (b"[" * 100_000, "not JSON"),
    ],
)
async def test_malformed_bodies(start_front: StartFront, body: bytes, words: str) -> None:
    front = await start_front()
    async with front.session.post(front.url + PATH, data=body, headers=front.headers()) as answer:
        parsed = await answer.json()
    assert answer.status == 400
    assert words in parsed["error"]["message"]


async def test_a_body_over_the_limit_is_refused_without_reading_it(start_front: StartFront) -> None:
    front = await start_front(server={"max_body_mb": 1})
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {front.keys['user']}\r\n"
    writer.write(f"{head}Content-Length: {100 * 2**20}\r\n\r\n".encode())
    line = await reader.readline()
    assert b"413" in line
    writer.close()


async def test_a_chunked_body_over_the_limit_is_cut(start_front: StartFront) -> None:
    front = await start_front(server={"max_body_mb": 1})

    async def endless() -> Any:
        for _ in range(64):
            yield b"x" * 65536

    async with front.session.post(front.url + PATH, data=endless(), headers=front.headers()) as answer:
        body = await answer.json()
    assert (answer.status, body["error"]["code"]) == (413, "payload_too_large")


async def test_half_sent_requests_end_in_time_and_harm_nobody(start_front: StartFront) -> None:
    front = await start_front(server={"body_timeout_s": 0.2})
    front.children.answer = answer_once
    silent = await asyncio.open_connection("127.0.0.1", front.port)
    half = await asyncio.open_connection("127.0.0.1", front.port)
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {front.keys['user']}\r\nContent-Length: 50\r\n\r\n"
    )
    half[1].write(head.encode() + b'{"model"')
    assert (await front.post(PATH, CHAT))[0] == 200
    for reader, writer in (silent, half):
        async with asyncio.timeout(2):
            assert b"408" in await reader.readline()
            await reader.read()
        writer.close()
    assert front.services.accounting.active == 0


async def test_a_client_that_leaves_before_an_answer_frees_its_slot(start_front: StartFront) -> None:
    front = await start_front()

    async def hang(_request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    front.children.answer = hang
    asking = asyncio.create_task(front.post(PATH, CHAT))
    while not front.services.fleet.engines() or not front.services.fleet.engines()[0].in_flight:
        await asyncio.sleep(0.01)
    asking.cancel()
    async with asyncio.timeout(1):
        while front.services.fleet.engines()[0].in_flight:
            await asyncio.sleep(0.01)


async def test_a_full_queue_is_503_with_retry_after(start_front: StartFront, tiny_model: Any) -> None:
    row = {"name": "tiny", "path": str(tiny_model), "max_instances": 1, "queue_max_waiting": 0}
    front = await start_front(models=[row])
    release = asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        await release.wait()
        return await answer_once(request)

    front.children.answer = wait
    first = asyncio.create_task(front.post(PATH, CHAT))
    while not front.services.fleet.engines() or not front.services.fleet.engines()[0].in_flight:
        await asyncio.sleep(0.01)
    async with front.session.post(front.url + PATH, json=CHAT, headers=front.headers()) as answer:
        body = await answer.json()
    assert (answer.status, body["error"]["code"]) == (503, "queue_full")
    assert int(answer.headers["Retry-After"]) >= 1
    release.set()
    assert (await first)[0] == 200


async def test_a_key_s_rate_limit_is_429(start_front: StartFront) -> None:
    front = await start_front(auth={"requests_per_minute": 2})
    front.children.answer = answer_once
    statuses = [(await front.post(PATH, CHAT))[0] for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert (await front.post(PATH, CHAT, "admin"))[0] == 200


async def test_a_cold_model_that_takes_too_long_is_503_and_goes_on_loading(start_front: StartFront) -> None:
    front = await start_front(server={"cold_wait_s": 0.1})
    front.children.slow_s = 0.6
    front.children.answer = answer_once
    status, body = await front.post(PATH, CHAT)
    assert (status, body["error"]["code"]) == (503, "model_loading")
    async with asyncio.timeout(5):
        while (await front.post(PATH, CHAT))[0] != 200:
            await asyncio.sleep(0.1)
    assert front.children.started == ["cpu/tiny"]


async def test_an_engine_that_dies_mid_request_is_replaced_unseen(start_front: StartFront) -> None:
    front = await start_front()
    died = asyncio.Event()

    async def die(request: web.Request) -> web.Response:
        if not died.is_set():
            died.set()
            assert request.transport is not None
            request.transport.abort()
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(front.children.kill("cpu/tiny")))
            asyncio.get_running_loop().call_later(
                0.3, lambda: asyncio.ensure_future(front.children.restart("cpu/tiny"))
            )
        return await answer_once(request)

    front.children.answer = die
    status, body = await front.post(PATH, CHAT)
    assert (status, body["choices"][0]["message"]["content"]) == (200, "hello")
    assert front.services.fleet.engines()[0].incarnation == 2


async def test_a_dead_service_is_named(start_front: StartFront, unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    front = await start_front(models=[{"name": "far", "service_url": f"{url}/v1", "served_model": "x"}])
    status, body = await front.post(PATH, CHAT | {"model": "far"})
    assert status == 502
    assert body["error"]["message"] == f"configured service_url {url} is not answering its health check"


async def test_a_revoked_key_is_refused_within_two_seconds(start_front: StartFront) -> None:
    front = await start_front()
    await asyncio.to_thread(revoke_key, front.services.database, "user")
    async with asyncio.timeout(2):
        while (await front.get("/v1/models"))[0] != 401:
            await asyncio.sleep(0.1)


async def test_metrics_and_usage_count_what_happened(start_front: StartFront) -> None:
    front = await start_front()
    front.children.answer = answer_once
    await front.post(PATH, CHAT)
    await front.post(PATH, CHAT | {"model": "nope"})
    async with front.session.get(front.url + "/metrics", headers=front.headers()) as answer:
        page = await answer.text()
    assert 'coderai_requests_total{engine="cpu/tiny",key="user",kind="chat",model="tiny",status="200"} 1.0' in page
    assert 'model="unknown",status="404"' in page
    assert "nope" not in page
    assert 'coderai_engine_up{backend="cpu",engine="cpu/tiny",remote="false"} 1.0' in page
    assert "coderai_queue_wait_seconds_bucket" in page
    await front.services.accounting.flush()


async def test_every_run_is_in_the_spool(start_front: StartFront) -> None:
    front = await start_front()
    front.children.answer = answer_once
    async with front.session.post(front.url + PATH, json=CHAT, headers=front.headers()) as answer:
        run = answer.headers["X-Coderai-Run"]
    segments = sorted(front.settings.at("spool").iterdir())
    boot, record = [json.loads(line) for segment in segments for line in segment.read_bytes().splitlines()]
    assert (boot["kind"], record["boot"]) == ("boot", boot["boot"])
    assert (record["id"], record["flow"], record["status"]) == (run, "chat", "completed")
    assert record["steps"][0]["attempts"][0]["engine"] == "cpu/tiny"


async def test_the_key_is_never_passed_on(start_front: StartFront) -> None:
    front = await start_front()
    seen: list[str] = []

    async def look(request: web.Request) -> web.Response:
        seen.append(str(dict(request.headers)))
        return await answer_once(request)

    front.children.answer = look
    await front.post(PATH, CHAT)
    assert front.keys["user"] not in seen[0]


async def test_wrong_methods_and_paths_are_in_openai_s_shape(start_front: StartFront) -> None:
    front = await start_front()
    status, body = await front.get("/v1/completions")
    assert (status, body["error"]["code"]) == (405, "method_not_allowed")
    status, body = await front.get("/v1/nowhere")
    assert (status, body["error"]["code"]) == (404, "unknown_url")
