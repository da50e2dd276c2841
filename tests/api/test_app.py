"""The way to the routes on FastAPI: no body is read without a key, none over the limit, and what is read arrives."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.api.conftest import Front, StartFront

PLAN = {"endpoint": "chat", "request": {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}}


async def ask(front: Front, head: str, body: bytes = b"") -> tuple[int, Any]:
    """Send a head and what there is of the body; status and JSON of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    try:
        writer.write(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
        async with asyncio.timeout(5):
            status = int((await reader.readline()).split()[1])
            length = 0
            while (line := await reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split()[1])
            return status, json.loads(await reader.readexactly(length))
    finally:
        writer.close()


@pytest.mark.parametrize("body", [b"", b"{", b"x" * 1000])
async def test_without_a_key_no_body_is_waited_for(start_front: StartFront, body: bytes) -> None:
    front = await start_front()
    for path in ("/v1/plan", "/admin/api/model-load", "/nowhere"):
        status, answer = await ask(front, f"POST {path} HTTP/1.1\nHost: x\nContent-Length: 5000000000\n", body)
        assert (status, answer["error"]["code"]) == (401, "missing_api_key")


@pytest.mark.parametrize("path", ["/v1/plan", "/healthz", "/nowhere"])
async def test_a_body_over_the_limit_is_refused_everywhere(start_front: StartFront, path: str) -> None:
    front = await start_front(server={"max_body_mb": 1})
    key = f"Authorization: {front.headers()['Authorization']}\n"
    status, answer = await ask(front, f"POST {path} HTTP/1.1\nHost: x\n{key}Content-Length: 1048577\n")
    assert (status, answer["error"]["code"]) == (413, "payload_too_large")
    chunk = b"%x\r\n" % 2**20 + b"x" * 2**20 + b"\r\n"
    status, answer = await ask(front, f"POST {path} HTTP/1.1\nHost: x\n{key}Transfer-Encoding: chunked\n", 2 * chunk)
    assert (status, answer["error"]["code"]) == (413, "payload_too_large")


async def test_a_body_in_pieces_arrives_whole(start_front: StartFront) -> None:
    front = await start_front()
    text = json.dumps(PLAN).encode()

    async def pieces() -> Any:
        for index in range(0, len(text), 7):
            yield text[index : index + 7]
            await asyncio.sleep(0)

    headers = front.headers() | {"Content-Type": "application/json"}
    async with front.session.post(front.url + "/v1/plan", data=pieces(), headers=headers) as answer:
        assert answer.status == 200
        assert (await answer.json())["plan"]["flow"] == "chat"


async def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody(
    start_front: StartFront, caplog: pytest.LogCaptureFixture
) -> None:
    front = await start_front()
    _reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    key = front.headers()["Authorization"]
    writer.write(f"POST /v1/plan HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nContent-Length: 99\r\n\r\n{{".encode())
    await writer.drain()
    await asyncio.sleep(0.02)
    writer.transport.abort()
    await asyncio.sleep(0.05)
    assert (await front.get("/v1/models"))[0] == 200
    assert "Exception in ASGI application" not in caplog.text


@pytest.mark.parametrize("endpoint", [b"chat", b"\\ud800"])
@pytest.mark.parametrize("value", [b'"\\ud800"', b"NaN", b"[" * 100_000 + b"]" * 100_000])
async def test_what_no_answer_could_repeat_is_refused(start_front: StartFront, endpoint: bytes, value: bytes) -> None:
    front = await start_front()
    body = b'{"endpoint":"%b","request":{"model":%b}}' % (endpoint, value)
    headers = front.headers() | {"Content-Type": "application/json"}
    async with front.session.post(f"{front.url}/v1/plan", data=body, headers=headers) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["code"] == "invalid_json"


async def test_a_request_that_is_too_deep_to_be_written_down_is_refused(start_front: StartFront) -> None:
    async def alive(_request: web.Request) -> web.Response:
        return web.json_response({"data": []})

    app = web.Application()
    app.router.add_get("/v1/models", alive)
    async with TestServer(app) as service:
        front = await start_front([{"name": "far", "service_url": str(service.make_url("/"))}])
        deep: Any = 1
        for _ in range(300):
            deep = [deep]
        body = {"model": "far", "messages": [{"role": "user", "content": "Hi"}], "of_the_service": deep}
        for path, sent in (("/v1/chat/completions", body), ("/v1/plan", {"endpoint": "chat", "request": body})):
            status, answer = await front.post(path, sent)
            assert status == 400
            assert "nested" in answer["error"]["message"]
