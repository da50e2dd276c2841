"""The Prefect child's question to itself: a real server, one that is deaf, and nobody."""

import asyncio
import socket
from collections.abc import MutableMapping
from typing import Any

import pytest
import uvicorn

from infra.prefect_child import alive
from infra.prefect_child.alive import Alive, App, Receive, Send, answers
from tests.ports import free_port

pytestmark = pytest.mark.enable_socket


async def held_up(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """An app that has let in as many requests as it wants to."""
    assert scope["type"] == "http"
    await asyncio.sleep(600)


async def served(app: App, port: int) -> bool:
    """What a server with this app says of itself."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, lifespan="off", log_config=None))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    try:
        return await answers(port)
    finally:
        server.force_exit = True
        await server.shutdown()


async def test_it_answers_whatever_the_app_does() -> None:
    assert await served(Alive(held_up), free_port())


async def test_an_app_of_its_own_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "ANSWER_S", 0.2)
    assert not await served(held_up, free_port())


async def test_nobody_and_who_takes_no_connection_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "ANSWER_S", 0.2)
    port = free_port()
    assert not await answers(port)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", port))
        deaf.listen()
        assert not await answers(port)


async def test_other_requests_are_the_apps() -> None:
    seen: list[str] = []

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        seen.append(scope["path"] if scope["type"] == "http" else scope["type"])

    async def never() -> MutableMapping[str, Any]:
        raise AssertionError("nothing is read")

    async def nothing(message: MutableMapping[str, Any]) -> None:
        raise AssertionError(f"nothing is said: {message}")

    for scope in ({"type": "http", "path": "/flows/api/health"}, {"type": "lifespan"}, {"type": "websocket"}):
        await Alive(app)(scope, never, nothing)
    assert seen == ["/flows/api/health", "lifespan", "websocket"]
