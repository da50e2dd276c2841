"""Batches and their flow runs: the beginning, the end by a wish, and the look at runs that ended without a word."""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from api.jobs import end_run, flow_runs
from api.services import Services
from infra.batch_rows import Batch, BatchProblem, NewBatch
from infra.errors import CoderAIError
from infra.prefect_shapes import FlowRun
from infra.tokens import Key
from infra.types import RunId

log = logging.getLogger("api.batches")

DEPLOYMENT: Final = "batch/batch"
LOOK_S: Final = 5.0
"""Seconds between two looks at the runs of batches that are not over."""
_BEGUN_S: Final = 60.0
"""Seconds in which a batch has got its run, or never will."""


async def begin(services: Services, key: Key, new: NewBatch) -> Batch:
    """A batch and its flow run.

    Raises:
        InvalidRequest: its input is no file of this key's for batches.
        FlowsUnavailable: no flow run can be made now.
    """
    api, desk = flow_runs(services), services.files
    owner = None if key.scope == "admin" else key.name
    made = await desk.run(lambda: desk.batches.create(new, owner))
    tags = [f"key:{key.name}", "lane:job", f"batch:{made.id}"]
    try:
        run = await api.create_run(DEPLOYMENT, {"request": {"batch": made.id}}, tags, made.id)
    except BaseException:
        await desk.run(lambda: desk.batches.forget(made.id))
        raise
    return await desk.run(lambda: desk.batches.started(made.id, RunId(str(run.id))))


async def cancel_run(services: Services, batch: Batch, why: str) -> None:
    """Have the run ended; what becomes of the batch, whoever carries it out says.

    Raises:
        FlowsUnavailable: the flow-run server does not answer; the batch is ended once it does.
    """
    if batch.run is not None:
        await end_run(services, batch.run, why)


class BatchWatch:
    """Looks at batches whose run has ended without their own end: it was cancelled before it began, was given up, or
    its worker process died; the last are begun again, and go on where they were."""

    def __init__(self, services: Services, look_s: float = LOOK_S) -> None:
        self._services = services
        self._desk = services.files
        self._look_s = look_s

    async def keep(self) -> None:
        """Look, for ever.

        Raises:
            DatabaseUnusable: the rows cannot be read.
        """
        while True:
            for batch in await self._desk.run(self._desk.batches.under_way):
                try:
                    await self._look_at(batch)
                except CoderAIError as error:
                    log.info("the batch %s could not be looked after: %s", batch.id, error.message)
            await asyncio.sleep(self._look_s)

    async def _look_at(self, batch: Batch) -> None:
        if batch.run is None:
            if self._desk.files.now() - batch.created_at > timedelta(seconds=_BEGUN_S):
                await self._fail(batch, "its run could not be made; send it again")
            return
        run = await flow_runs(self._services).run(batch.run)
        if run is None:
            await self._fail(batch, "its run is not kept any more; send it again")
        elif run.terminal:
            await self._settle(batch, run)
        elif batch.status == "cancelling" and (run.state is None or run.state.type != "CANCELLING"):
            await cancel_run(self._services, batch, "Cancelled as its batch")

    async def _settle(self, batch: Batch, run: FlowRun) -> None:
        """The run is over and the batch is not: unless that has just changed, it is told now."""
        kind = run.state.type if run.state is not None else "CRASHED"
        if batch.status == "cancelling" or kind == "CANCELLED":
            await self._desk.run(lambda: self._desk.batches.finish(batch.id, "cancelled", {}))
        elif kind == "CRASHED":
            log.info("the batch %s goes on: its worker process had ended", batch.id)
            why = "Its worker process had ended; it goes on where it was"
            await flow_runs(self._services).set_state(RunId(str(run.id)), "SCHEDULED", "AwaitingRetry", why, force=True)
        else:
            message = (run.state.message if run.state is not None else None) or "its run has ended"
            await self._fail(batch, message)

    async def _fail(self, batch: Batch, message: str) -> None:
        problem = BatchProblem(code="run_failed", message=message)
        await self._desk.run(lambda: self._desk.batches.move(batch.id, "failed", [problem]))
