"""Who comes in at `/internal`: the internal token from this machine, and nobody else."""

from io import BytesIO
from typing import Any

import aiohttp
import pytest

from api.asgi import CLIENT_EXTENSION, Client
from api.internal.app import internal_app
from tests.api.conftest import TOKEN, Front, StartFront

pytestmark = pytest.mark.enable_socket

OURS = {"Authorization": f"Bearer {TOKEN}"}
LEASES = "/internal/leases"
ROUTES = [("POST", "/internal/plan"), ("GET", "/internal/pools"), ("POST", "/internal/runs/1/cancel"), ("GET", LEASES)]


async def ask(front: Front, method: str, path: str, headers: dict[str, str]) -> tuple[int, Any]:
    async with front.session.request(method, front.url + path, headers=headers, json={}) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_to_all_others_there_is_nothing(start_front: StartFront, method: str, path: str) -> None:
    front = await start_front()
    strangers = [{}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": TOKEN}]
    for headers in (*strangers, *(front.headers(scope) for scope in front.keys)):
        status, answer = await ask(front, method, path, headers)
        assert (status, answer["error"]["code"]) == (404, "unknown_url")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/internal"), ("GET", "/internal/plan"), ("POST", "/internal/pools"), ("POST", "/internal/runs//cancel")],
)
async def test_what_is_not_there_is_not_there_for_us_either(start_front: StartFront, method: str, path: str) -> None:
    front = await start_front()
    status, answer = await ask(front, method, path, OURS)
    assert (status, answer["error"]["code"]) == (404, "unknown_url")


async def test_a_stranger_s_socket_is_not_opened(start_front: StartFront) -> None:
    front = await start_front()
    for path, headers in ((LEASES, {}), (LEASES, front.headers("admin")), ("/internal/pools", OURS)):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await front.session.ws_connect(front.url + path, headers=headers)
        assert caught.value.status == 404


@pytest.mark.parametrize(
    ("client", "status"),
    [
        (("127.0.0.1", 1), 200),
        (("127.8.0.1", 1), 200),
        (("::1", 1), 200),
        (("::ffff:127.0.0.1", 1), 200),
        (("192.168.1.5", 1), 404),
        (("::ffff:192.168.1.5", 1), 404),
        (("fe80::1", 1), 404),
        (("box", 1), 404),
        (None, 404),
    ],
)
async def test_the_token_is_worth_nothing_from_another_machine(
    start_front: StartFront, client: tuple[str, int] | None, status: int
) -> None:
    front = await start_front()
    app, sent = internal_app(front.services), list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/internal/pools",
        "headers": [(b"authorization", OURS["Authorization"].encode())],
        "client": client,
        "extensions": {CLIENT_EXTENSION: Client()},
    }
    await app(scope, receive, send)
    assert sent[0]["status"] == status


async def test_a_socket_from_another_machine_is_refused_by_a_server_that_cannot_say_404(
    start_front: StartFront,
) -> None:
    front = await start_front()
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", OURS["Authorization"].encode())]
    scope: dict[str, Any] = {"type": "websocket", "path": LEASES, "headers": headers, "client": ("192.168.1.5", 1)}
    await internal_app(front.services)(scope, receive, send)
    assert sent == [{"type": "websocket.close"}]


async def test_a_body_is_limited(start_front: StartFront) -> None:
    front = await start_front(server={"max_body_mb": 1})
    async with front.session.post(
        front.url + "/internal/plan", data=BytesIO(b"x" * (2 * 2**20)), headers=OURS
    ) as answer:
        assert answer.status == 413
        assert (await answer.json())["refused"]["error"] == "PayloadTooLarge"
