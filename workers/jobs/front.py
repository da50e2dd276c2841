"""The front of this install as the worker process sees it: plans, cards, and the end of a run that is not a job."""

import asyncio
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import aiohttp
import orjson
from pydantic import Field, ValidationError

from infra.errors import CoderAIError, NoCapacity
from infra.listen import RUN_FILE
from infra.types import FarShape, Json, KeyName, PoolId, RunId
from workers.refused import rebuilt
from workers.wire import LeaseRefused

ANSWER_S = 30.0
"""Seconds that an answer may take; planning may read a model's file."""
PATIENCE_S = 30.0
"""Seconds that a restarting front is waited for."""
_PAUSE_S = 0.5


class FrontGone(NoCapacity):
    """The front does not answer: it is starting, stopping, or has ended."""

    code = "front_gone"


class _Address(FarShape):
    url: str = Field(pattern=r"^https?://")


class _Refusal(FarShape):
    refused: LeaseRefused


class Card(FarShape):
    """One card of this machine: the work pool that has its name."""

    pool: PoolId


class _Cards(FarShape):
    pools: tuple[Card, ...]


class _Cancelled(FarShape):
    cancelled: bool


class Front:
    """Asks the front on loopback, with the token that the processes of one install know each other by.

    Where it listens is read anew for every question: a front that has restarted may be elsewhere. Made on a running
    loop.
    """

    def __init__(self, home: Path, token: str, *, patience_s: float = PATIENCE_S) -> None:
        self._run_file = home.joinpath(*RUN_FILE)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._patience_s = patience_s
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=ANSWER_S), trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def plan(
        self, flow: str, request: dict[str, Json], key: KeyName, sizes: tuple[int, ...] | None = None
    ) -> bytes:
        """The plan of a request as JSON text, as the front would carry it out now; its parts of these `sizes`, or none.

        Raises:
            FrontGone: there is no front.
            CoderAIError: the request cannot be met; the message is the front's.
        """
        ask: dict[str, Json] = {"flow": flow, "request": request, "key": key}
        if sizes is not None:
            ask["sizes"] = list(sizes)
        return await self._patiently("POST", "/internal/plan", ask)

    async def cards(self) -> tuple[PoolId, ...]:
        """The cards of this machine.

        Raises:
            FrontGone: there is no front, or it has nothing to say about cards.
        """
        answer = await self._patiently("GET", "/internal/pools")
        try:
            return tuple(card.pool for card in _Cards.model_validate_json(answer).pools)
        except ValidationError as error:
            raise FrontGone(f"the front's list of cards cannot be read: {error.errors()[0]['msg']}") from error

    async def cancel(self, run: RunId) -> bool:
        """End a run of the front's own lane; False if the front is not executing it.

        Raises:
            FrontGone: there is no front.
        """
        answer = await self._ask("POST", f"/internal/runs/{quote(run, safe='')}/cancel", {})
        try:
            return _Cancelled.model_validate_json(answer).cancelled
        except ValidationError as error:
            raise FrontGone("the front's answer to a cancellation cannot be read") from error

    async def connect(self, path: str) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket to the front.

        Raises:
            FrontGone: there is no front, or it refuses.
        """
        try:
            return await self._session.ws_connect(f"{self._url()}{path}", headers=self._headers, heartbeat=30.0)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _gone(error) from error

    async def _patiently(self, method: str, path: str, body: Json = None) -> bytes:
        """The answer's body; a front that is gone may come back meanwhile."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._patience_s
        while True:
            try:
                return await self._ask(method, path, body)
            except FrontGone:
                if loop.time() >= until_s:
                    raise
                await asyncio.sleep(_PAUSE_S)

    async def _ask(self, method: str, path: str, body: Json = None) -> bytes:
        headers, data = dict(self._headers), None
        if body is not None:
            headers["Content-Type"], data = "application/json", orjson.dumps(body)
        try:
            async with self._session.request(
                method, f"{self._url()}{path}", data=data, headers=headers, allow_redirects=False
            ) as answer:
                status, text = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _gone(error) from error
        if status == HTTPStatus.OK:
            return text
        raise _refused(status, text)

    def _url(self) -> str:
        try:
            return _Address.model_validate_json(self._run_file.read_bytes()).url
        except (OSError, ValidationError) as error:
            raise FrontGone(
                "the front of this install does not say where it listens: it is starting or down"
            ) from error


def _gone(error: Exception) -> FrontGone:
    return FrontGone(f"the front of this install does not answer: {error or type(error).__name__}", retry_after_s=5)


def _refused(status: int, text: bytes) -> CoderAIError:
    """The front's own error."""
    try:
        return rebuilt(_Refusal.model_validate_json(text).refused)
    except ValidationError:
        return FrontGone(f"the front of this install answered HTTP {status}")
