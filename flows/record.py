"""The observer that turns what happened to a run into its record."""

import asyncio
from collections.abc import Callable

from flows.plan import Plan, Step
from infra.clock import wall
from infra.errors import CoderAIError, RunCancelled
from infra.records import Attempt, Payload, RunRecord, StepRecord
from infra.types import KeyName, RunId
from tasks.types import TaskResult
from workers.live import Lease


class RunRecorder:
    """Keeps the record of one run while it happens; with a payload also the results that another try would need."""

    __slots__ = ("_now", "_steps", "engine", "record")

    def __init__(
        self, run: RunId, plan: Plan, key: KeyName, payload: Payload | None = None, now: Callable[[], float] = wall
    ) -> None:
        self._now = now
        steps = [StepRecord(step.id, step.task, tuple(step.refs.values())) for step in plan.steps]
        self._steps = {step.id: step for step in steps}
        self.record = RunRecord(run, plan.flow, plan.model, key, now(), steps, status="running", payload=payload)
        self.engine = ""
        """The engine of the last placement."""

    def placed(self, step: Step, lease: Lease | None) -> None:
        """A try begins."""
        attempts = self._steps[step.id].attempts
        if lease is None:
            attempts.append(Attempt(None, None, 0, "done by the front itself", [], self._now()))
            return
        placement = lease.placement
        self.engine = lease.engine.id
        if not attempts:
            self.record.queue_wait_s = max(self.record.queue_wait_s, lease.waited_s)
        passed = [(over.candidate, over.reason) for over in placement.passed_over]
        attempts.append(
            Attempt(lease.engine.pool, lease.engine.id, lease.incarnation, placement.reason, passed, self._now())
        )

    def finished(self, step: Step, result: TaskResult) -> None:
        """The step has its result."""
        kept = self._steps[step.id]
        kept.status = "completed"
        kept.attempts[-1].ended_at = self._now()
        payload, usage = self.record.payload, result.usage
        if payload is not None and not isinstance(result.value, bytes):
            payload.steps[step.id] = result.value
        if usage is not None:
            record = self.record
            record.prompt_tokens = (record.prompt_tokens or 0) + usage.prompt_tokens
            record.completion_tokens = (record.completion_tokens or 0) + usage.completion_tokens
            record.cached_tokens = (record.cached_tokens or 0) + usage.cached_tokens

    def failed(self, step: Step, error: BaseException, *, final: bool) -> None:
        """A try failed."""
        kept = self._steps[step.id]
        attempt = kept.attempts[-1]
        attempt.ended_at = self._now()
        attempt.error = describe(error)
        if final:
            kept.status = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"

    def close(self, error: BaseException | None, first_token_s: float | None) -> RunRecord:
        """The finished record; `error` is what ended the run, None if it has its answer."""
        record = self.record
        record.ended_at = self._now()
        record.first_token_s = first_token_s
        if error is None:
            record.status = "completed"
            return record
        gone = isinstance(error, asyncio.CancelledError)
        record.status = "cancelled" if gone or isinstance(error, RunCancelled) else "failed"
        record.error = "cancelled: the client left" if gone else describe(error)
        for step in record.steps:
            if step.status == "pending":
                step.status = "cancelled"
        return record


def describe(error: BaseException) -> str:
    """An error in a record: our own sentence, or the kind of a foreign one (its text may hold a prompt)."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return error.message if isinstance(error, CoderAIError) else type(error).__name__
