"""A run as its owner sees it, made of the record in this front's memory or of the flow run in Prefect."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from flows.progress import RunProgress
from infra.prefect_shapes import FlowRun, LogLine, StateType, TaskRun
from infra.records import RunRecord, StepRecord
from infra.run_usage import RunUsage, labelled_usage, usage_of
from infra.types import Frozen, Json, ModelName, RunId

RunStatus = Literal["queued", "running", "paused", "cancelling", "completed", "failed", "cancelled", "crashed"]
STATES: dict[RunStatus, tuple[StateType, ...]] = {
    "queued": ("SCHEDULED", "PENDING"),
    "running": ("RUNNING",),
    "paused": ("PAUSED",),
    "cancelling": ("CANCELLING",),
    "completed": ("COMPLETED",),
    "failed": ("FAILED",),
    "cancelled": ("CANCELLED",),
    "crashed": ("CRASHED",),
}
"""Prefect's states, by our word for them."""
OVER: frozenset[RunStatus] = frozenset({"completed", "failed", "cancelled", "crashed"})
_STATUS: dict[StateType, RunStatus] = {kind: status for status, kinds in STATES.items() for kind in kinds}


class AttemptView(Frozen):
    """One try of a step. Times are seconds since the epoch."""

    pool: str | None
    engine: str | None
    reason: str
    passed_over: tuple[tuple[str, str], ...]
    started_at: float
    ended_at: float | None
    error: str | None


class StepView(Frozen):
    """One step of a run; `parents` are the steps whose results it read."""

    step: str
    status: str
    parents: tuple[str, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    error: str | None = None
    run_count: int = 1
    attempts: tuple[AttemptView, ...] = Field((), description="Where it was tried, while this server has it in memory.")


class UsageView(Frozen):
    """What the whole run has used, over all its executions."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    total_tokens: int
    units: float = Field(
        description="Besides tokens: pages read, seconds heard, characters spoken, images or videos made."
    )


class LogView(Frozen):
    """One line of the run's log."""

    at: float
    level: int
    message: str


class RunView(Frozen):
    """One run. Times are seconds since the epoch; `started_at` is that of its first try."""

    id: RunId
    object: Literal["run"] = "run"
    status: RunStatus
    flow: str
    model: ModelName | None
    key: str | None = Field(None, description="Whose run it is; shown to admin keys.")
    lane: Literal["interactive", "job"]
    created_at: float
    started_at: float | None
    ended_at: float | None
    duration_s: float | None
    error: str | None
    run_count: int = Field(description="How often it was executed; more than 1 after a retry.")
    usage: UsageView | None = Field(None, description="Null where no engine told what it used.")
    answer_url: str | None = Field(None, description="Where the kept answer can be fetched.")
    flow_url: str = Field(description="The run's page in the flow-run UI.")


class RunDetail(RunView):
    """One run with all that is known of it."""

    progress: RunProgress | None = Field(None, description="How far it is, while an engine works on it that tells.")
    steps: tuple[StepView, ...] = ()
    report: str | None = Field(None, description="Placements with their reasons, as Markdown.")
    answer: Json = Field(None, description="The kept answer, where it is JSON.")
    log: tuple[LogView, ...] = Field((), description="Lines of its log; shown to admin keys.")


def of_record(record: RunRecord) -> RunView:
    """A run that this front executes, or executed lately."""
    ended_at = record.ended_at or None
    return RunView(
        id=record.id,
        status=record.status if ended_at else "running",
        flow=record.flow,
        model=record.model,
        key=record.key,
        lane="interactive",
        created_at=record.started_at,
        started_at=record.started_at,
        ended_at=ended_at,
        duration_s=None if ended_at is None else round(ended_at - record.started_at, 6),
        error=record.error,
        run_count=1,
        usage=_usage(usage_of(record)),
        flow_url=flow_url(record.id),
    )


def of_flow_run(run: FlowRun, flow: str) -> RunView:
    """A run that Prefect knows, of that flow."""
    state = run.state
    status: RunStatus = _STATUS[state.type] if state else "queued"
    model = run.tag("model")
    started_at, ended_at = _epoch(run.start_time), _epoch(run.end_time) if run.terminal else None
    return RunView(
        id=run.id,
        status=status,
        flow=flow,
        model=None if model is None else ModelName(model),
        key=run.tag("key"),
        lane="job" if run.tag("lane") == "job" else "interactive",
        created_at=min(run.created.timestamp(), started_at or run.created.timestamp()),
        started_at=started_at,
        ended_at=ended_at,
        duration_s=round(run.total_run_time, 6) if started_at is not None else None,
        error=state.message if state and status in ("failed", "cancelled", "crashed") else None,
        run_count=run.run_count,
        usage=_usage(labelled_usage(run.labels)),
        flow_url=flow_url(run.id),
    )


def steps_of_record(record: RunRecord) -> tuple[StepView, ...]:
    """The steps with every try of each."""
    return tuple(_step(step) for step in record.steps)


def steps_of_tasks(tasks: list[TaskRun]) -> tuple[StepView, ...]:
    """The steps as far as Prefect has task runs of them: runs of one step have none."""
    names = {task.id: task.name for task in tasks}
    return tuple(
        StepView(
            step=task.name,
            status=_STATUS[task.state.type] if task.state else "queued",
            parents=tuple(
                names[parent.id]
                for parents in task.task_inputs.values()
                for parent in parents
                if parent.id is not None and parent.id in names
            ),
            started_at=_epoch(task.start_time),
            ended_at=_epoch(task.end_time),
            error=task.state.message if task.state and task.state.type in ("FAILED", "CRASHED") else None,
            run_count=task.run_count,
        )
        for task in tasks
    )


def log_lines(lines: list[LogLine]) -> tuple[LogView, ...]:
    """The log, oldest first."""
    return tuple(LogView(at=line.timestamp.timestamp(), level=line.level, message=line.message) for line in lines)


def flow_url(run: RunId) -> str:
    """The run's page in the flow-run UI, below this server's root."""
    return f"/flows/runs/flow-run/{run}"


def _usage(usage: RunUsage | None) -> UsageView | None:
    if usage is None:
        return None
    return UsageView(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        units=usage.units,
    )


def _step(step: StepRecord) -> StepView:
    attempts = tuple(
        AttemptView(
            pool=attempt.pool,
            engine=attempt.engine,
            reason=attempt.reason,
            passed_over=tuple(attempt.passed_over),
            started_at=attempt.started_at,
            ended_at=attempt.ended_at or None,
            error=attempt.error,
        )
        for attempt in step.attempts
    )
    return StepView(
        step=step.id,
        status="running" if step.status == "pending" and attempts else step.status,
        parents=step.parents,
        started_at=attempts[0].started_at if attempts else None,
        ended_at=attempts[-1].ended_at if attempts else None,
        error=attempts[-1].error if attempts else None,
        attempts=attempts,
    )


def _epoch(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
