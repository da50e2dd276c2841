"""What Prefect's REST API answers, as far as we read it (its schemas: `prefect.server.schemas`, version 3.9)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from infra.types import FarShape, Json, PoolId, RunId

StateType = Literal[
    "SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING", "COMPLETED", "FAILED", "CANCELLED", "CRASHED"
]
TERMINAL: frozenset[StateType] = frozenset({"COMPLETED", "FAILED", "CANCELLED", "CRASHED"})
"""States that a run does not leave by itself."""


class FlowState(FarShape):
    """A state of a flow run or a task run."""

    type: StateType
    name: str
    message: str | None = None
    timestamp: datetime


class FlowRun(FarShape):
    """One flow run. `start_time` is that of its first try, `total_run_time` the seconds of all its tries."""

    id: RunId
    name: str
    flow_id: UUID
    deployment_id: UUID | None = None
    parameters: dict[str, Json] = Field(default_factory=dict)
    tags: tuple[str, ...] = ()
    labels: dict[str, Json] | None = None
    state: FlowState | None = None
    run_count: int = 0
    created: datetime
    expected_start_time: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    total_run_time: float = 0.0
    parent_task_run_id: UUID | None = None
    infrastructure_pid: str | None = None
    work_pool_name: str | None = None

    def tag(self, kind: str) -> str | None:
        """The value of the tag `<kind>:<value>`."""
        return next((tag[len(kind) + 1 :] for tag in self.tags if tag.startswith(f"{kind}:")), None)

    @property
    def terminal(self) -> bool:
        """Whether it is over."""
        return self.state is not None and self.state.type in TERMINAL


class TaskInput(FarShape):
    """What a task run read: here only another task run's result is meant."""

    input_type: str
    id: UUID | None = None


class TaskRun(FarShape):
    """One task run of a flow run."""

    id: UUID
    name: str
    task_key: str
    tags: tuple[str, ...] = ()
    state: FlowState | None = None
    run_count: int = 0
    start_time: datetime | None = None
    end_time: datetime | None = None
    total_run_time: float = 0.0
    task_inputs: dict[str, tuple[TaskInput, ...]] = Field(default_factory=dict)


class LogLine(FarShape):
    """One line of a run's log; `level` is Python's."""

    level: int
    message: str
    timestamp: datetime


class Artifact(FarShape):
    """Something that a run shows; `data` is text where `type` is markdown."""

    id: UUID
    created: datetime
    key: str | None = None
    type: str | None = None
    description: str | None = None
    data: Json = None


class WorkPoolState(FarShape):
    """One work pool. No `concurrency_limit` is None; `status` is READY, NOT_READY or PAUSED."""

    name: PoolId
    type: str
    is_paused: bool = False
    concurrency_limit: int | None = None
    active_slots: int | None = None
    status: str | None = None
    base_job_template: dict[str, Json] = Field(default_factory=dict)

    @property
    def device(self) -> str | None:
        """The card that it names: the default of the template's variable `device`."""
        place: Json = self.base_job_template
        for word in ("variables", "properties", "device", "default"):
            place = place.get(word) if isinstance(place, dict) else None
        return place if isinstance(place, str) else None


class Transition(FarShape):
    """What became of a wish for a state: `accepted`, or the server's `reason`."""

    accepted: bool
    reason: str = ""
    state: FlowState | None = None


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which flow runs: those of `ids` (all if empty) with all of `tags`, in one of `states` (any if empty), that
    began no later than `before`. A run that has not begun yet counts from when it is to begin."""

    ids: tuple[RunId, ...] = ()
    tags: tuple[str, ...] = ()
    states: tuple[StateType, ...] = ()
    before: datetime | None = None

    def to_json(self) -> dict[str, Json]:
        """As Prefect's `FlowRunFilter`."""
        wanted: dict[str, Json] = {}
        if self.ids:
            wanted["id"] = {"any_": [*self.ids]}
        if self.tags:
            wanted["tags"] = {"all_": [*self.tags]}
        if self.states:
            wanted["state"] = {"type": {"any_": [*self.states]}}
        if self.before is not None:
            wanted["start_time"] = {"before_": self.before.isoformat()}
        return wanted
