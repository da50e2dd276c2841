"""A batch carried out: its requests a few at a time, results kept as they come, its row told how far it is.

Knows nothing of Prefect: `flows/jobs.py` gives it what does one request, and who is told of the progress.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Final

import orjson

from infra.batch_lines import BatchLine, BatchRefused, Outcome, Results, checked, requests
from infra.batch_rows import OVER, Batch, Batches, BatchProblem, Status
from infra.clock import Clock, monotonic, wall
from infra.error_object import error_object, status_of
from infra.errors import CoderAIError, NoCapacity, Nowhere
from infra.file_names import new_id
from infra.types import Json

log = logging.getLogger(__name__)

AT_ONCE: Final = 8
"""Requests of one batch at once: the front's queues are for clients, too."""
TELL_S: Final = 2.0
"""Seconds between two words about the progress."""
PATIENCE_S: Final = 600.0
"""Seconds that one request is asked again for while nothing can take it."""
_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 30.0
_OK: Final = 200

Do = Callable[[dict[str, Json]], Awaitable[bytes]]
"""Does one request and gives the answer's body; raises CoderAIError."""
Tell = Callable[[Batch], Awaitable[None]]
"""Hears how far the batch is, now and then; must not raise."""


@dataclass(slots=True)
class BatchRun:
    """One execution of one batch. `results` may have what an earlier one has done."""

    batch: Batch
    batches: Batches
    results: Results
    do: Do
    tell: Tell
    now: Clock = wall
    tell_s: float = TELL_S
    _total: int = 0

    async def carry_out(self) -> Batch:
        """Do what is not done, and end the batch.

        Raises:
            CancelledError: it was ended from outside; `cut_short` ends the batch where that was wished.
            CoderAIError: it could not be carried out; the batch has failed, and says why.
        """
        if self.batch.status in OVER:
            return self.batch
        try:
            await self._prepare()
            left_s = self.batch.expires_at.timestamp() - self.now()
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    await self._do_all()
            except TimeoutError:
                await asyncio.to_thread(self._give_up, "batch_expired", "its time was over before it was done")
                return await self._end("expired")
            await asyncio.to_thread(self.batches.move, self.batch.id, "finalizing")
            return await self._end("completed")
        except CoderAIError as error:
            await asyncio.to_thread(self.batches.move, self.batch.id, "failed", _problems(error))
            raise

    async def cut_short(self) -> Batch:
        """End it as cancelled, with what is done.

        Raises:
            CoderAIError: the files could not be kept.
        """
        return await self._end("cancelled")

    async def _prepare(self) -> None:
        """Check the input, take over what is done.

        Raises:
            BatchRefused: it is none.
            NotFound: its content is gone.
        """
        await asyncio.to_thread(self.results.open)

        def check() -> int:
            with self._source() as source:
                return checked(source, self.batch.endpoint)

        self._total = await asyncio.to_thread(check)
        await asyncio.to_thread(self.batches.move, self.batch.id, "in_progress")
        await self._say()

    async def _do_all(self) -> None:
        with self._source() as source:
            left = requests(source)
            try:
                async with asyncio.TaskGroup() as group:
                    over = asyncio.Event()
                    group.create_task(self._keep_saying(over))
                    await asyncio.wait([group.create_task(self._do_some(left)) for _ in range(AT_ONCE)])
                    over.set()
            except BaseExceptionGroup as several:
                raise several.exceptions[0] from several

    async def _do_some(self, left: Iterator[BatchLine]) -> None:
        # Reading the next line is quick; and an iterator that two threads ask at once would break.
        for line in left:
            if line.custom_id not in self.results.done:
                outcome, result = await self._done(line)
                await asyncio.to_thread(self.results.add, outcome, line.custom_id, result)

    async def _done(self, line: BatchLine) -> tuple[Outcome, dict[str, Json]]:
        result: dict[str, Json] = {"id": new_id("batch_req_", self.now())}
        outcome: Outcome = "output"
        try:
            status, body = _OK, orjson.loads(await self._patiently(line.body))
        except CoderAIError as error:
            outcome, status, body = "error", status_of(error), {"error": error_object(error)}
        response: dict[str, Json] = {"status_code": status, "request_id": result["id"], "body": body}
        return outcome, result | {"response": response, "error": None}

    async def _patiently(self, body: dict[str, Json]) -> bytes:
        """The answer; where nothing can take the request now, or the front restarts, it is asked again for a while."""
        until_s = monotonic() + PATIENCE_S
        while True:
            try:
                return await self.do(body)
            except Nowhere:
                raise
            except NoCapacity as error:
                pause_s = min(_LONGEST_PAUSE_S, error.retry_after_s or _PAUSE_S)
                if monotonic() + pause_s > until_s:
                    raise
                await asyncio.sleep(pause_s)

    def _give_up(self, code: str, message: str) -> None:
        """Say of every request that is not done why."""
        with self._source() as source:
            for line in requests(source):
                if line.custom_id not in self.results.done:
                    told: dict[str, Json] = {"code": code, "message": message}
                    result: dict[str, Json] = {"id": new_id("batch_req_", self.now()), "response": None, "error": told}
                    self.results.add("error", line.custom_id, result)

    async def _end(self, status: Status) -> Batch:
        await self._say()
        outputs = {str(outcome): path for outcome, path in self.results.paths().items()}
        ended = await asyncio.to_thread(self.batches.finish, self.batch.id, status, outputs, self.results.spent)
        await self.tell(ended)
        return ended

    async def _keep_saying(self, over: asyncio.Event) -> None:
        """Tell of every progress soon, also while those that are still at work take their time."""
        said = sum(self.results.counts.values())
        while not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.tell_s):
                    await over.wait()
            done = sum(self.results.counts.values())
            if done > said:
                said = done
                await self._say()

    async def _say(self) -> None:
        """Tell how far it is."""
        completed, failed = self.results.counts["output"], self.results.counts["error"]
        total = max(self._total, completed + failed)
        await asyncio.to_thread(self.batches.count, self.batch.id, total, completed, failed)
        await self.tell(self.batch.model_copy(update={"total": total, "completed": completed, "failed": failed}))

    def _source(self) -> BinaryIO:
        return self.batches.files.store.open(self.batch.input_ref or "")


def answered(now: Batch) -> tuple[float, str]:
    """How much of a batch is done, in per cent and in words."""
    percent = 100.0 * (now.completed + now.failed) / max(1, now.total)
    return percent, f"{now.completed} of {now.total} requests answered, {now.failed} failed ({now.status})"


def _problems(error: CoderAIError) -> list[BatchProblem]:
    if isinstance(error, BatchRefused):
        return error.problems
    return [BatchProblem(code=error.code or "error", message=error.message, param=error.param)]
