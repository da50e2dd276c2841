"""Looks at responses whose job has ended without a word: it was cancelled before it began, was given up, or its worker
process died; the last are begun again, so that nothing is lost that was acknowledged."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

from api.jobs import flow_runs
from api.services import Services
from infra.errors import CoderAIError
from infra.prefect_api import PAGE
from infra.prefect_shapes import FlowRun, RunFilter
from infra.response_rows import BackgroundResponses, UnderWay
from infra.run_files import RunFiles
from infra.types import Json, ResponseId, RunId

log = logging.getLogger("api.openai.responses")

LOOK_S: Final = 5.0
"""Seconds between two looks at the runs of responses that are not over."""
MOST_TRIES: Final = 5
"""How often a job is begun before its response fails: what ends a worker process each time is given up."""
_BEGUN_S: Final = 60.0
"""Seconds in which a response has got its run, or never will."""


class ResponseWatch:
    """Gives responses their end, or another beginning."""

    def __init__(self, services: Services, look_s: float = LOOK_S) -> None:
        self._services = services
        self._rows = BackgroundResponses(services.database)
        self._look_s = look_s

    async def keep(self) -> None:
        """Look, for ever."""
        while True:
            try:
                await self.look()
            except CoderAIError as error:
                log.info("responses in the background could not be looked after: %s", error.message)
            await asyncio.sleep(self._look_s)

    async def look(self) -> None:
        """One look at those that are not over.

        Raises:
            DatabaseUnusable: the rows cannot be read or written.
            FlowsUnavailable: the flow-run server does not answer.
        """
        waiting = await asyncio.to_thread(self._rows.under_way)
        known = {each.run: each for each in waiting if each.run is not None}
        for each in waiting:
            if each.run is None and datetime.now(UTC) - each.created_at > timedelta(seconds=_BEGUN_S):
                await self._fail(each.id, "its run could not be made; send it again")
        runs = list(known)
        for begin in range(0, len(runs), PAGE):
            await self._look_at(known, runs[begin : begin + PAGE])

    async def _look_at(self, known: dict[RunId, UnderWay], runs: list[RunId]) -> None:
        found = {run.id: run for run in await flow_runs(self._services).runs(RunFilter(ids=tuple(runs)), limit=PAGE)}
        for asked in runs:
            run = found.get(asked)
            if run is None:
                await self._fail(known[asked].id, "its run is not kept any more; send it again")
            elif run.terminal:
                await self._settle(known[asked].id, run)

    async def _settle(self, response: ResponseId, run: FlowRun) -> None:
        """The run is over and the response is not: unless that has just changed, it is told now."""
        kind = run.state.type if run.state is not None else "CRASHED"
        if kind == "CANCELLED":
            await asyncio.to_thread(self._rows.end, response, "cancelled")
        elif kind == "CRASHED" and run.run_count < MOST_TRIES:
            if not await asyncio.to_thread(self._rows.is_under_way, response):
                return  # it was cancelled meanwhile, or deleted: nobody wants it
            log.info("the response %s is begun again: its worker process had ended", response)
            why = "Its worker process had ended; it is begun again"
            await flow_runs(self._services).set_state(run.id, "SCHEDULED", "AwaitingRetry", why, force=True)
        elif kind == "COMPLETED":
            await self._answer(response, run.id)
        else:
            await self._fail(response, (run.state.message if run.state is not None else None) or "its run has ended")

    async def _answer(self, response: ResponseId, run: RunId) -> None:
        """The run has an answer that the response did not hear of: the response was stored after it."""
        kept = await asyncio.to_thread(lambda: RunFiles(self._services.settings.home).answer(run))
        if kept is None:
            await self._fail(response, "the answer of its run is not kept any more; send it again")
        else:
            await asyncio.to_thread(self._rows.answer, response, orjson.loads(kept[0]))

    async def _fail(self, response: ResponseId, message: str) -> None:
        error: dict[str, Json] = {"code": "server_error", "message": message}
        await asyncio.to_thread(self._rows.end, response, "failed", error)
