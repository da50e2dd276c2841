"""A request that brings files, from their coming to their going: the base of the routes that take some.

A subclass says in `_take` what the request is. It keeps a file that is in memory by `put`, and one that comes in pieces
by `incoming` and `keep`; the references they return go into the request, where its steps find them (`TaskCall.fetch`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from api.accounting import Account
from api.asgi import Exchange, Receive, Scope, Send
from api.jobs import LANE, is_job
from api.openai.endpoint import Endpoint, Resource
from api.services import Services
from infra.file_store import Incoming
from infra.types import Json, RunId


class MediaVisit(Endpoint, ABC):
    """One request, with the files that it has brought: made anew for each, and called once."""

    def __init__(self, services: Services, resource: Resource) -> None:
        super().__init__(services, resource)
        self._kept = services.kept
        self._refs: list[str] = []
        self._job = False
        self._refused = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; afterwards its files are there only if its run is kept."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await asyncio.to_thread(self._leave)

    @abstractmethod
    async def _take(self, exchange: Exchange) -> dict[str, Json]:
        """The request to be planned: what the client sent, with references where it sent files.

        Raises:
            CoderAIError: it is wrong, or cannot be kept.
            ClientGone: it left.
        """

    async def put(self, data: bytes) -> str:
        """Keep a file for as long as the request; returns its reference, `sha256:` and 64 hex digits.

        Raises:
            DiskFull: there is no room for it.
        """
        async with self.incoming(len(data), len(data)) as incoming:
            await asyncio.to_thread(incoming.write, data)
            return await self.keep(incoming)

    @asynccontextmanager
    async def incoming(self, max_bytes: int, announced_bytes: int, hint: str = "") -> AsyncIterator[Incoming]:
        """A file that comes in pieces, gone afterwards if it was not kept; `hint` is what to do about a larger one.

        Raises:
            DiskFull: there is no room for it.
        """
        incoming = await asyncio.to_thread(self._kept.begin, max_bytes, announced_bytes, hint, job=self._job)
        try:
            yield incoming
        finally:
            await asyncio.to_thread(incoming.discard)

    async def keep(self, incoming: Incoming) -> str:
        """Keep what has come for as long as the request; returns its reference.

        Raises:
            DiskFull: there is no room after all.
        """
        return await asyncio.to_thread(self._keep, incoming)

    async def link(self, ref: str, source: Path) -> None:
        """Keep content that lies in this install already for as long as the request.

        Raises:
            NotFound: it does not (any more).
            DiskFull: there is no room for its name.
        """
        await asyncio.to_thread(self._kept.link, ref, source, job=self._job)
        self._refs.append(ref)

    def _keep(self, incoming: Incoming) -> str:
        self._refs.append(ref := self._kept.keep(incoming, job=self._job))
        return ref

    def _leave(self) -> None:
        for ref in self._refs:
            self._kept.leave(ref, job=self._job, keep=not self._refused)

    async def _answer(self, exchange: Exchange, run: RunId, account: Account) -> None:
        try:
            await super()._answer(exchange, run, account)
        except Exception:
            self._refused = account.record is None  # it never became a run
            raise

    async def _read(self, exchange: Exchange) -> tuple[bytes, dict[str, Json]]:
        lane = exchange.header(LANE)
        self._job = lane is not None and is_job(lane)
        body = await self._take(exchange)
        return orjson.dumps(body), body
