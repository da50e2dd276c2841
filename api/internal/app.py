"""The routes under `/internal`: for the install's own processes on this machine, and for nobody else.

To others there is no such place: without the internal token, or from another machine, the answer is 404.
"""

import ipaddress
import logging
from http import HTTPStatus

from api.asgi import ClientGone, Exchange, Receive, Scope, Send, headers_by_name
from api.errors import error_body, error_headers
from api.internal.leases import LeaseRoute
from api.internal.routes import Routes, failure
from api.services import Services
from infra.error_object import status_of
from infra.errors import NotFound

log = logging.getLogger("api.internal")

_WRAPPING_BYTES = 64 * 1024
"""What a job's request may be longer by than a client's: it comes with flow and key."""


class InternalApp:
    """One connection of another process of this install."""

    def __init__(self, services: Services) -> None:
        self._auth = services.auth
        self._leases = LeaseRoute(services)
        self._routes = Routes(services)
        self._max_body_bytes = services.settings.server.max_body_mb * 2**20 + _WRAPPING_BYTES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hold a lease for as long as a WebSocket is open."""
        known = _is_here(scope) and self._auth.is_internal(headers_by_name(scope["headers"]))
        if scope["type"] == "http":
            await self._answer(Exchange(scope, receive, send), known=known)
        elif known and scope["path"] == "/internal/leases":
            await self._leases(receive, send)
        else:
            await _turn_away(scope, receive, send)

    async def _answer(self, exchange: Exchange, *, known: bool) -> None:
        method, path = exchange.scope["method"], exchange.path
        answer = self._routes.find(method, path) if known else None
        if answer is None:
            await exchange.fail(_nothing(path), [])
            return
        try:
            await exchange.answer(HTTPStatus.OK, await answer(await exchange.body(self._max_body_bytes)))
        except ClientGone:
            return
        except Exception as error:  # the edge: whatever went wrong is answered and logged
            if status_of(error) == HTTPStatus.INTERNAL_SERVER_ERROR:
                log.exception("%s %s failed", method, path)
            await exchange.answer(status_of(error), failure(error), error_headers(error))


def internal_app(services: Services) -> InternalApp:
    """The routes under `/internal`."""
    return InternalApp(services)


def _is_here(scope: Scope) -> bool:
    """Whether the peer is a process of this machine."""
    client = scope.get("client")
    try:
        address = ipaddress.ip_address(client[0]) if client else None
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address is not None and address.is_loopback


def _nothing(path: str) -> NotFound:
    return NotFound(f"there is no {path}; see GET /openapi.json", code="unknown_url")


async def _turn_away(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a WebSocket's opening like any path that is not there."""
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})
        return
    error = _nothing(scope["path"])
    body = error_body(error)
    headers = [*error_headers(error), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": status_of(error), "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
