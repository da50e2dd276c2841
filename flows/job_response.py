"""The stored response that a job makes: it hears that the job has begun, what comes of its answer, and how it ended."""

import asyncio
import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Final

import orjson

from flows.job_events import JobEvents, open_events
from flows.record import describe
from infra.clock import monotonic
from infra.errors import CoderAIError
from infra.response_events import ResponseEvents
from infra.response_rows import ANSWERED, RUN_TAG, BackgroundResponses
from infra.types import Json, ResponseId, RunId
from tasks.responses.answer import error_code
from workers.jobs.live import CURRENT

log = logging.getLogger(__name__)

_TAG: Final = f"{RUN_TAG}:"


class JobResponse:
    """The response of a run with such a tag; of other runs nothing is told. A job that is stopped, to go on later, is
    under way for those who ask for it."""

    def __init__(self, responses: BackgroundResponses, events: ResponseEvents, run: RunId, tags: Iterable[str]) -> None:
        self._responses = responses
        self._events = events
        self._run = run
        self._id = next((ResponseId(tag.removeprefix(_TAG)) for tag in tags if tag.startswith(_TAG)), None)
        self._began_s = monotonic()
        self._replaced = False
        self.channel: JobEvents | None = None
        """Where its events go while it is made, for those who follow it."""

    @property
    def first_token_s(self) -> float | None:
        """Seconds from the beginning of the job to the first piece of its answer; None if it did not come in pieces."""
        first_s = self.channel.first_write_s if self.channel is not None else None
        return None if first_s is None else first_s - self._began_s

    async def __aenter__(self) -> "JobResponse":
        if self._id is not None:
            status = await asyncio.to_thread(self._responses.begin, self._id, self._run)
            self._replaced = status in ANSWERED
            if status == "in_progress":
                self.channel = await open_events(self._events, self._id)
        return self

    async def keep(self, answer: bytes) -> None:
        """It has its answer. Of an answer before it, what was told of that one goes with it.

        Raises:
            DiskFull, DatabaseUnusable: the answer is not stored.
        """
        if self._id is None:
            return
        if self._replaced:
            await asyncio.to_thread(self._events.forget, self._id)
        told_bytes = self.channel.size_bytes if self.channel is not None else 0
        await asyncio.to_thread(self._responses.answer, self._id, orjson.loads(answer), told_bytes)
        if self.channel is not None:
            await self.channel.close(over=True)

    async def is_gone(self) -> bool:
        """Whether the response that the run was to make was deleted: nothing of it is to be kept."""
        return self._id is not None and not await asyncio.to_thread(self._responses.knows, self._id)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._id is None:
            return
        over = False
        try:
            over = await self._told(self._id, error)
        except CoderAIError as untold:
            log.warning("the response %s has not heard of the end of its run: %s", self._id, untold.message)
        finally:
            if self.channel is not None:
                await self.channel.close(over=over)

    async def _told(self, response: ResponseId, error: BaseException | None) -> bool:
        """Tell it why it has no answer; False if it is to go on later."""
        told_bytes = self.channel.size_bytes if self.channel is not None else 0
        if isinstance(error, asyncio.CancelledError):
            if CURRENT.get().end != "cancelled":
                return False
            await asyncio.to_thread(self._responses.end, response, "cancelled", None, told_bytes)
        elif isinstance(error, Exception):
            told: dict[str, Json] = {"code": error_code(error), "message": describe(error)}
            await asyncio.to_thread(self._responses.end, response, "failed", told, told_bytes)
        return error is None or isinstance(error, (asyncio.CancelledError, Exception))
