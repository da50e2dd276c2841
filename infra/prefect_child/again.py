"""Asks Prefect's API once more where its database refused what another transaction was in the way of.

Prefect answers 503 then: nothing was done, come again. Its own clients do so seconds later, its UI not at all; so we
ask again here, milliseconds later. On SQLite transactions have their turn (`turns.py`), and it is a rare thing.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from infra.prefect_child.spec import API_BASE

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

PAUSES_S = (0.03, 0.1, 0.25, 0.5)
MOST_BYTES = 1024 * 1024
"""A larger body is not kept for another try."""
RECORD_PATH = f"{API_BASE}/coderai/record"
"""Ours: asks again by itself where that helps."""
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class AskAgain:
    """ASGI middleware; requests that change nothing pass through."""

    def __init__(self, app: App, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self._app = app
        self._pauses_s = pauses_s

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _CHANGING or scope["path"] == RECORD_PATH:
            await self._app(scope, receive, send)
            return
        messages, whole = await _body(receive)
        for pause_s in self._pauses_s if whole else ():
            if await self._answered(dict(scope), _replay(messages, receive), send):
                return
            await asyncio.sleep(pause_s)
        await self._app(scope, _replay(messages, receive), send)

    async def _answered(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> bool:
        """Let the app answer; an answer of 503 is held back, and False returned."""
        held = False

        async def pass_on(message: Message) -> None:
            nonlocal held
            held = held or message.get("status") == HTTPStatus.SERVICE_UNAVAILABLE
            if not held:
                await send(message)

        try:
            await self._app(scope, receive, pass_on)
        except Exception:
            if not held:
                raise  # Prefect's own handler raises on what it has answered with 503
        return not held


async def _body(receive: Receive) -> tuple[list[Message], bool]:
    """The messages of the request's body, and whether they are all."""
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return messages, True
        if size > MOST_BYTES:
            return messages, False


def _replay(messages: list[Message], receive: Receive) -> Receive:
    waiting = iter(messages)

    async def again() -> Message:
        message = next(waiting, None)
        return await receive() if message is None else message

    return again
