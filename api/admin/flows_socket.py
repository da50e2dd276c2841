"""The flow-run server's event and log streams: WebSockets, opened with our key on an admin's behalf."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import orjson

from api.admin.flows_paths import SOCKETS, canonical
from api.admin.upstream import RETRY_S, Upstream
from api.asgi import Receive, Scope, Send
from infra.errors import CoderAIError, FlowsUnavailable, NotFound

log = logging.getLogger("api.admin.flows")

FRAME_MOST_BYTES = 2 * 2**20
"""The longest message of the flow-run server's: its events are at most 1.5 MB. (A client's: `api/front.py`.)"""
LOOK_S = 1.0
"""Seconds between looks at whether the admin who opened it still may: a revoked key's stream ends."""
_SUBPROTOCOL = "prefect"
_HANDSHAKE_S = 10.0
_PING_S = 20.0
_ANSWERED = '{"type":"auth_success"}'

_Closing = tuple[int, str]
_GONE: _Closing = (1011, "the flow-run server has gone")
_NEVER_SENT = (1005, 1006)
"""Codes that stand for the lack of one (RFC 6455, 7.4.1)."""


class FlowsSocket:
    """Joins one client's WebSocket to one of the flow-run server's."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def __call__(self, scope: Scope, receive: Receive, send: Send, recheck: Callable[[], Any]) -> None:
        """Pass messages on until one side ends; `recheck` raises CoderAIError once the admin is none any more.

        Raises:
            CoderAIError: there is no such stream, or nothing answers; the client has not been accepted then.
        """
        if scope["path"] not in SOCKETS:
            raise NotFound(f"there is no such stream; there are {', '.join(sorted(SOCKETS))}")
        async with self._opened(scope) as far:
            await receive()  # websocket.connect
            offered = _SUBPROTOCOL in scope["subprotocols"]
            await send({"type": "websocket.accept", "subprotocol": _SUBPROTOCOL if offered else None})
            code, reason = await _first(
                _to_server(receive, send, far), _to_client(send, far), _while_admin(recheck, LOOK_S)
            )
            with contextlib.suppress(OSError, RuntimeError):  # uvicorn's words for: the client has closed already
                await send({"type": "websocket.close", "code": code, "reason": reason})

    @contextlib.asynccontextmanager
    async def _opened(self, scope: Scope) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """The flow-run server's side, past its own log-in."""
        url = self._upstream.url(canonical(scope["path"]), scope["query_string"])
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_HANDSHAKE_S):
                    far = await self._upstream.session.ws_connect(
                        url, protocols=(_SUBPROTOCOL,), max_msg_size=FRAME_MOST_BYTES, heartbeat=_PING_S
                    )
                    stack.push_async_callback(far.close)
                    await _log_in(far, self._upstream.token)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError) as error:
                words = str(error) or type(error).__name__
                raise FlowsUnavailable(
                    f"the flow-run server did not open the stream ({words}); try again", retry_after_s=RETRY_S
                ) from error
            yield far


async def _log_in(far: aiohttp.ClientWebSocketResponse, token: str) -> None:
    """Prefect's WebSockets take no header: their first message is the key, their first answer says that it was good."""
    await far.send_json({"type": "auth", "token": token})
    answer = await far.receive_json()
    if answer != {"type": "auth_success"}:
        raise ValueError("it did not take our key")


async def _first(*sides: Any) -> _Closing:
    """The end of whichever ends first; the others are stopped."""
    tasks = [asyncio.ensure_future(side) for side in sides]
    try:
        done, _pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        closing: _Closing = next(iter(done)).result()
    except (aiohttp.ClientError, OSError):  # it ends while something is being sent to it
        return _GONE
    else:
        return closing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _to_server(receive: Receive, send: Send, far: aiohttp.ClientWebSocketResponse) -> _Closing:
    """A client of Prefect's sends its own key first: it is let go here, and answered as Prefect would."""
    first = True
    while True:
        message = await receive()
        if message["type"] != "websocket.receive":
            return 1000, ""
        text = message.get("text")
        if text is None:
            return 1003, "messages are text"
        if first and _is_login(text):
            await send({"type": "websocket.send", "text": _ANSWERED})
        else:
            await far.send_str(text)
        first = False


def _is_login(text: str) -> bool:
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(message, dict) and message.get("type") == "auth"


async def _to_client(send: Send, far: aiohttp.ClientWebSocketResponse) -> _Closing:
    async for message in far:
        if message.type is aiohttp.WSMsgType.TEXT:
            await send({"type": "websocket.send", "text": message.data})
    code = far.close_code
    return _GONE if code is None or code in _NEVER_SENT else (code, "")


async def _while_admin(recheck: Callable[[], Any], every_s: float) -> _Closing:
    while True:
        await asyncio.sleep(every_s)
        try:
            recheck()
        except CoderAIError as error:
            return 1008, error.message[:120]
