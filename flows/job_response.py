"""The stored response that a job makes: it hears that the job has begun, its answer, or why there is none."""

import asyncio
import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Final

import orjson

from flows.record import describe
from infra.errors import CoderAIError
from infra.response_rows import RUN_TAG, BackgroundResponses
from infra.types import Json, ResponseId, RunId
from tasks.responses.answer import error_code
from workers.jobs.live import CURRENT

log = logging.getLogger(__name__)

_TAG: Final = f"{RUN_TAG}:"


class JobResponse:
    """The response of a run with such a tag; of other runs nothing is told. A job that is stopped, to go on later, is
    under way for those who ask for it."""

    def __init__(self, responses: BackgroundResponses, run: RunId, tags: Iterable[str]) -> None:
        self._responses = responses
        self._run = run
        self._id = next((ResponseId(tag.removeprefix(_TAG)) for tag in tags if tag.startswith(_TAG)), None)

    async def __aenter__(self) -> "JobResponse":
        if self._id is not None:
            await asyncio.to_thread(self._responses.begin, self._id, self._run)
        return self

    async def keep(self, answer: bytes) -> None:
        """It has its answer.

        Raises:
            DiskFull, DatabaseUnusable: the answer is not stored.
        """
        if self._id is not None:
            await asyncio.to_thread(self._responses.answer, self._id, orjson.loads(answer))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._id is None or error is None:
            return
        try:
            await self._told(self._id, error)
        except CoderAIError as untold:
            log.warning("the response %s has not heard of the end of its run: %s", self._id, untold.message)

    async def _told(self, response: ResponseId, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            if CURRENT.get().end == "cancelled":
                await asyncio.to_thread(self._responses.end, response, "cancelled")
        else:
            told: dict[str, Json] = {"code": error_code(error), "message": describe(error)}
            await asyncio.to_thread(self._responses.end, response, "failed", told)
