"""The routes on FastAPI: whatever goes wrong is answered in OpenAI's shape, and without a key nothing is told."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, Query
from starlette.exceptions import HTTPException as FrameworkError

from api.asgi import Message
from api.auth import Auth
from api.cold import AdminKey, UserKey, install_handlers
from infra.database import open_database
from infra.errors import QueueFull
from infra.migrate import migrate
from infra.tokens import TokenTable, create_key
from infra.types import Frozen


class Teacup(Exception):
    """A mistake of ours."""


class Order(Frozen):
    """A body with a rule."""

    count: int


@dataclass
class Door:
    """What `install_handlers` needs of the services."""

    auth: Auth


@dataclass
class Client:
    """Calls an ASGI application in this process."""

    app: FastAPI
    key: str

    async def ask(
        self, method: str, path: str, body: bytes = b"", *, key: bool = True
    ) -> tuple[int, dict[bytes, bytes], Any]:
        """Status, headers, JSON."""
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        path, _mark, query = path.partition("?")
        headers = [(b"content-type", b"application/json")]
        if key:
            headers.append((b"authorization", f"Bearer {self.key}".encode()))
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": headers,
        }
        scope |= {"server": ("x", 80), "client": ("y", 1), "scheme": "http", "root_path": "", "http_version": "1.1"}
        with contextlib.suppress(Teacup):  # the framework answers, then raises it again for the server's log
            await self.app(scope, receive, send)
        whole = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], dict(sent[0]["headers"]), json.loads(whole)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    database = open_database(f"sqlite:///{tmp_path / 'coderai.db'}")
    migrate(database)
    key = create_key(database, "ann", "user")
    table = TokenTable(database)
    table.refresh()
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.services = Door(Auth(table, "internal"))

    @app.post("/orders")
    async def order(order: Order, _key: UserKey, size: Annotated[int, Query(ge=1)] = 1) -> Order:
        return order

    @app.get("/full")
    async def full(_key: UserKey) -> None:
        raise QueueFull("full", retry_after_s=4)

    @app.get("/bug")
    async def bug(_key: UserKey) -> None:
        raise Teacup("a secret")

    @app.get("/teapot")
    async def teapot(_key: UserKey) -> None:
        raise FrameworkError(418, "short and stout")

    @app.get("/admin")
    async def admin(_key: AdminKey) -> None:
        return None

    install_handlers(app, frozenset({"/hot"}))
    yield Client(app, key)
    database.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "param"),
    [
        ("POST", "/orders", b'{"count": "x"}', 400, "invalid_request", "count"),
        ("POST", "/orders", b"{}", 400, "invalid_request", "count"),
        ("POST", "/orders", b'{"count": 1, "more": 2}', 400, "unknown_parameter", "more"),
        ("POST", "/orders?size=0", b'{"count": 1}', 400, "invalid_request", "size"),
        ("POST", "/orders", b"{", 400, "invalid_request", None),
        ("POST", "/orders", b"\xff", 400, "invalid_request", None),
        ("POST", "/orders", b"", 400, "invalid_request", None),
        ("GET", "/orders", b"", 405, "method_not_allowed", None),
        ("GET", "/hot", b"", 405, "method_not_allowed", None),
        ("GET", "/nowhere", b"", 404, "unknown_url", None),
        ("GET", "/full", b"", 503, "queue_full", None),
        ("GET", "/bug", b"", 500, "internal_error", None),
        ("GET", "/teapot", b"", 418, "invalid_request", None),
        ("GET", "/admin", b"", 403, "insufficient_scope", None),
    ],
)
async def test_errors_have_openai_s_shape(
    client: Client, method: str, path: str, body: bytes, status: int, code: str, param: str | None
) -> None:
    got, _headers, answer = await client.ask(method, path, body)
    error = answer["error"]
    assert (got, error["code"]) == (status, code)
    if param is not None:
        assert error["param"] == param
    assert error["message"]
    assert "secret" not in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("query", "body", "message"),
    [
        ("", b'{"count": "x"}', "'count' must be an integer"),
        ("", b"{}", "'count' is required"),
        ("", b'{"count": 1, "more": 2}', "Unrecognized request argument supplied: more"),
        ("?size=0", b'{"count": 1}', "'size' must be at least 1"),
        ("?size=many", b'{"count": 1}', "'size' must be an integer"),
        ("", b"[]", "the request's body must be a JSON object, sent with Content-Type: application/json"),
        ("", b"", "the request's body must be a JSON object, sent with Content-Type: application/json"),
    ],
)
async def test_a_sentence_says_what_is_wrong_as_on_the_other_routes(
    client: Client, query: str, body: bytes, message: str
) -> None:
    _status, _headers, answer = await client.ask("POST", f"/orders{query}", body)
    assert answer["error"]["message"] == message


@pytest.mark.parametrize("path", ["/full", "/bug", "/nowhere", "/hot", "/admin"])
async def test_without_a_key_nothing_is_told(client: Client, path: str) -> None:
    status, headers, answer = await client.ask("GET", path, key=False)
    assert (status, answer["error"]["code"]) == (401, "missing_api_key")
    assert headers[b"www-authenticate"] == b"Bearer"


async def test_retry_after_is_sent(client: Client) -> None:
    _status, headers, _answer = await client.ask("GET", "/full")
    assert headers[b"retry-after"] == b"4"
    assert headers[b"content-type"] == b"application/json"


async def test_a_bug_is_in_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    await client.ask("GET", "/bug")
    assert "GET /bug failed" in caplog.text
    assert "a secret" in caplog.text
