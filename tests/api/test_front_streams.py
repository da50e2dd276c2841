"""Streams at the edge: passed through, broken off, read slowly, left early; on real sockets."""

import asyncio
import json
from typing import Any

import aiohttp
from aiohttp import web

from tests.api.conftest import StartFront

STREAM: dict[str, Any] = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
PATH = "/v1/chat/completions"


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for word in ("one", "two"):
        chunk = {"choices": [{"index": 0, "delta": {"content": word}}], "object": "chat.completion.chunk"}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


async def test_a_stream_passes_through(start_front: StartFront) -> None:
    front = await start_front()
    front.children.answer = stream
    async with front.session.post(front.url + PATH, json=STREAM, headers=front.headers()) as answer:
        text = await answer.text()
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert [line for line in text.splitlines() if line][-1] == "data: [DONE]"
    assert text.count('"content"') == 2
    assert answer.headers["X-Coderai-Run"]


async def test_a_client_that_leaves_frees_its_slot_within_a_second(start_front: StartFront) -> None:
    front = await start_front()
    gone = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"data: {}\n\n")
                await asyncio.sleep(0.02)
        except (ConnectionError, asyncio.CancelledError):
            gone.set()
            raise

    front.children.answer = slow
    async with front.session.post(front.url + PATH, json=STREAM, headers=front.headers()) as answer:
        await answer.content.read(10)
        (engine,) = front.services.fleet.engines()
        assert engine.in_flight == 1
    async with asyncio.timeout(1):
        await gone.wait()
        while engine.in_flight:
            await asyncio.sleep(0.01)
    assert front.services.accounting.active == 0


async def test_a_stream_that_breaks_ends_with_an_error_event(start_front: StartFront) -> None:
    front = await start_front()

    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"choices": []}\n\n')
        await asyncio.sleep(0.05)
        assert request.transport is not None
        request.transport.abort()
        return response

    front.children.answer = broken
    async with front.session.post(front.url + PATH, json=STREAM, headers=front.headers()) as answer:
        text = await answer.text()
    last = [line for line in text.splitlines() if line][-1]
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["code"] == "engine_failed"
    assert "tried at cpu/tiny" in error["message"]


async def test_a_slow_reader_slows_the_engine_not_our_memory(start_front: StartFront) -> None:
    front = await start_front()
    sent = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2000):
            await response.write(b"data: " + b"x" * 16384 + b"\n\n")
            sent += 16384
        return response

    front.children.answer = flood
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port, limit=1024)
    body = json.dumps(STREAM)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {front.keys['user']}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    await reader.readline()
    await asyncio.sleep(0.5)
    held = sent
    await asyncio.sleep(0.3)
    assert sent == held < 2000 * 16384
    writer.close()


async def test_the_client_of_aiohttp_sees_a_clean_close(start_front: StartFront) -> None:
    front = await start_front()
    front.children.answer = stream
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        for _ in range(3):  # one kept-alive connection serves them all
            async with session.post(front.url + PATH, json=STREAM, headers=front.headers()) as answer:
                assert (await answer.read()).endswith(b"data: [DONE]\n\n")
