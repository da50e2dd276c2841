"""The pages of an operator: login, the flow-run UI and its API, answers of runs.

They have rules of their own for who may come in, so nothing here passes through the routes of `/v1`.
"""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import quote

from api.admin import pages
from api.admin.flows_paths import API
from api.admin.flows_proxy import FlowsProxy
from api.admin.flows_socket import FlowsSocket
from api.admin.guard import Guard
from api.admin.login import HOME, Login, redirect
from api.admin.sessions import KEY_FILE, Sessions
from api.admin.tries import Tries
from api.admin.upstream import Upstream
from api.asgi import ASGIApp, ClientGone, Exchange, Receive, Scope, Send
from api.auth import Auth
from api.errors import Headers, error_body, error_headers
from infra.error_object import status_of
from infra.errors import CoderAIError, FlowsUnavailable, NotAuthenticated, NotFound
from infra.prefect_address import PrefectAddress
from infra.settings import Settings
from infra.tokens import Key
from infra.types import RunId

log = logging.getLogger("api.admin")

AnswerOf = Callable[[Key, RunId], Awaitable[ASGIApp]]
"""The answer that a run has left, as an application that sends it. Raises NotFound."""
_ANSWER = re.compile(r"/admin/runs/([0-9a-f-]{36})/answer")
_ICON = re.compile(r"/(?:ico/)?([a-z0-9-]+\.(?:ico|png|svg))")
"""The flow-run UI's own, which it looks for at the root of the host, whatever it was told of its base."""
_READS = ("GET", "HEAD", "OPTIONS")
_NO_SNIFFING: Headers = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class SiteServices(Protocol):
    """What the site needs of the front's services."""

    @property
    def settings(self) -> Settings:
        """The install's settings."""

    @property
    def auth(self) -> Auth:
        """The keys."""

    @property
    def prefect(self) -> PrefectAddress | None:
        """Where flow runs are; None if they are switched off."""


class Site:
    """An ASGI application for the paths /login, /logout, /flows/**, /admin/** and the icons of the flow-run UI."""

    def __init__(self, services: SiteServices, answer_of: AnswerOf) -> None:
        self._answer_of = answer_of
        settings = services.settings
        sessions = Sessions(settings.at(*KEY_FILE), services.auth, settings.flows.login_hours * 3600)
        self._guard = Guard(services.auth, sessions)
        self._login = Login(services.auth, sessions, Tries())
        self._upstream = Upstream(services.prefect)
        self._flows = FlowsProxy(self._upstream, settings.server.max_body_mb * 2**20)
        self._socket = FlowsSocket(self._upstream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one WebSocket."""
        if scope["type"] == "websocket":
            await self._open_socket(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        try:
            await self._answer(exchange)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001  # the edge: whatever went wrong is answered and logged
            await self._fail(exchange, error)

    async def aclose(self) -> None:
        """Close every connection to the flow-run server."""
        await self._upstream.aclose()

    async def _answer(self, exchange: Exchange) -> None:
        path = exchange.path
        if path == "/login":
            await self._login.log_in(exchange)
        elif path == "/logout":
            await self._login.log_out(exchange)
        else:
            changes = exchange.scope["method"] not in _READS
            key = self._guard.admin(exchange.scope["headers"], changes=changes)
            if path == "/flows":
                await redirect(exchange, HOME)
            elif path.startswith("/flows/"):
                await self._flows(exchange)
            elif icon := _ICON.fullmatch(path):
                await redirect(exchange, f"{HOME}ico/{icon[1]}")
            else:
                await self._answer_admin(exchange, key)

    async def _answer_admin(self, exchange: Exchange, key: Key) -> None:
        """Our own pages for an operator.

        Raises:
            NotFound: there is no such page, run or answer.
        """
        if (found := _ANSWER.fullmatch(exchange.path)) and exchange.scope["method"] in ("GET", "HEAD"):
            answer = await self._answer_of(key, RunId(found[1]))
            exchange.answered = True
            await answer(exchange.scope, exchange.receive, exchange.send)
            return
        if exchange.path not in ("/admin", "/admin/"):
            raise NotFound("there is no such page; flow runs are at /flows/")
        await redirect(exchange, HOME)

    async def _open_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        def check() -> None:
            self._guard.admin(scope["headers"], changes=True)

        try:
            check()
            await self._socket(scope, receive, send, check)
        except CoderAIError as error:
            head = [*error_headers(error), *_NO_SNIFFING]
            await send({"type": "websocket.http.response.start", "status": status_of(error), "headers": head})
            await send({"type": "websocket.http.response.body", "body": error_body(error)})

    async def _fail(self, exchange: Exchange, error: Exception) -> None:
        if not isinstance(error, CoderAIError):
            log.error("%s %s failed", exchange.scope["method"], exchange.path, exc_info=error)
        if exchange.answered:
            return
        if not isinstance(error, CoderAIError) or not _wants_page(exchange):
            await exchange.fail(error, _NO_SNIFFING)
        elif isinstance(error, NotAuthenticated):
            await redirect(exchange, f"/login?next={quote(_address(exchange), safe='')}")
        else:
            page = _page_of(error)
            again = [pair for pair in error_headers(error) if pair[0] == b"retry-after"]
            await exchange.answer(status_of(error), page, pages.HEADERS + again)


def _page_of(error: CoderAIError) -> bytes:
    if isinstance(error, FlowsUnavailable):
        return pages.waiting_page(error.message)
    return pages.message_page("This cannot be shown", error.message)


def _wants_page(exchange: Exchange) -> bool:
    """Whether a person looks at the answer, and not a program."""
    accept = exchange.header(b"accept") or ""
    reads = exchange.scope["method"] in ("GET", "HEAD")
    return reads and "text/html" in accept and not exchange.path.startswith(API)


def _address(exchange: Exchange) -> str:
    """Path and query as the client sent them."""
    path: bytes = exchange.scope["raw_path"]
    query: bytes = exchange.scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")
