"""The observer that turns what happened to a run into its record."""

import asyncio
from collections.abc import Callable
from typing import Final

from flows.plan import Plan, Step
from infra.clock import wall
from infra.errors import CoderAIError, RunCancelled
from infra.records import Attempt, Payload, RunRecord, StepRecord
from infra.types import Json, KeyName, RunId
from tasks.types import TaskResult
from workers.live import Lease

_MOST_KEPT_BYTES: Final = 4 * 2**20
"""Of the results of one run's steps."""


class RunRecorder:
    """Keeps the record of one run while it happens; with a payload also the results that another try would need."""

    __slots__ = ("_kept_bytes", "_now", "_parts", "_steps", "engine", "record")

    def __init__(
        self, run: RunId, plan: Plan, key: KeyName, payload: Payload | None = None, now: Callable[[], float] = wall
    ) -> None:
        self._now = now
        steps = [StepRecord(step.id, step.task, tuple(step.refs.values())) for step in plan.steps]
        self._steps = {step.id: step for step in steps}
        self._parts = [step.id for step in plan.steps if step.items]
        self._kept_bytes = 0
        self.record = RunRecord(run, plan.flow, plan.model, key, now(), steps, status="running", payload=payload)
        self.engine = ""
        """The engine of the last placement."""

    @property
    def run(self) -> RunId:
        """The run's id."""
        return self.record.id

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

    def finished(self, step: Step, result: TaskResult, lease: Lease | None = None) -> None:
        """The step has its result."""
        kept = self._steps[step.id]
        kept.status = "completed"
        _attempt(kept, lease).ended_at = self._now()
        payload, usage = self.record.payload, result.usage
        if payload is not None and not isinstance(result.value, bytes):
            self._kept_bytes += text_bytes(result.value)
            if self._kept_bytes <= _MOST_KEPT_BYTES:  # else the step is run again, should the run be
                payload.steps[step.id] = result.value
        self.record.units += result.units
        if usage is not None:
            record = self.record
            record.prompt_tokens = (record.prompt_tokens or 0) + usage.prompt_tokens
            record.completion_tokens = (record.completion_tokens or 0) + usage.completion_tokens
            record.cached_tokens = (record.cached_tokens or 0) + usage.cached_tokens

    def failed(self, step: Step, error: BaseException, lease: Lease | None = None, *, final: bool) -> None:
        """A try failed; a step that has its result stays completed, whatever becomes of its other tries."""
        kept = self._steps[step.id]
        attempt = _attempt(kept, lease)
        attempt.ended_at = self._now()
        attempt.error = describe(error)
        if final and kept.status != "completed":
            kept.status = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"

    def close(self, error: BaseException | None, first_token_s: float | None) -> RunRecord:
        """The finished record; `error` is what ended the run, None if it has its answer."""
        record = self.record
        record.ended_at = self._now()
        record.first_token_s = first_token_s
        if error is None:
            record.status = "completed"
            if record.payload is not None:
                for part in self._parts:  # large, and of use only while others are missing
                    record.payload.steps.pop(part, None)
            return record
        gone = isinstance(error, asyncio.CancelledError)
        record.status = "cancelled" if gone or isinstance(error, RunCancelled) else "failed"
        record.error = "cancelled: the client left" if gone else describe(error)
        for step in record.steps:
            if step.status == "pending":
                step.status = "cancelled"
        return record


def _attempt(step: StepRecord, lease: Lease | None) -> Attempt:
    """The try on that engine: one that is late may run twice, on two."""
    engine = lease.engine.id if lease is not None else None
    return next((each for each in reversed(step.attempts) if each.engine == engine), step.attempts[-1])


def text_bytes(value: Json) -> int:
    """About how long the texts of a result are, which are all that can be long."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(text_bytes, value.values()))
    return sum(map(text_bytes, value)) if isinstance(value, list) and value and isinstance(value[0], str) else 0


def describe(error: BaseException) -> str:
    """An error in a record: our own sentence, or the kind of a foreign one (its text may hold a prompt)."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return error.message if isinstance(error, CoderAIError) else type(error).__name__
