"""The way to the routes on FastAPI: no body is read without a key, none over the limit, and what is read arrives."""

import asyncio
import json
from typing import Any

import pytest

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
