"""Whether this process answers over HTTP: it asks itself, at its own port, past all that Prefect does with a request.

Prefect lets a hundred requests in at once, which a busy SQLite may hold up for a minute: that is no reason to end it.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

from infra.prefect_child.spec import API_BASE

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

PATH: Final = f"{API_BASE}/coderai/alive"
ANSWER_S: Final = 20.0
_STATUS: Final = HTTPStatus.NO_CONTENT


class Alive:
    """ASGI: answers `PATH` itself, and leaves everything else to the app."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": _STATUS, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def answers(port: int) -> bool:
    """Whether the process at this port of loopback does so, within `ANSWER_S`."""
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                return f" {_STATUS} ".encode() in await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):  # nobody, not in time, no HTTP
        return False
