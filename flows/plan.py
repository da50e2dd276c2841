"""A request as data: a small DAG of steps, frozen, JSON, references only backwards.

A step names its task by text and its inputs by name; an input is a JSON value or a reference to an earlier step's
result. Because references only point back, one pass proves that a plan is acyclic and in a runnable order.
"""

from dataclasses import dataclass, field
from typing import NewType

from pydantic import TypeAdapter, ValidationError

from infra.errors import InvalidRequest
from infra.types import Json, ModelName
from workers.types import Demand

StepId = NewType("StepId", str)
TaskName = NewType("TaskName", str)


@dataclass(frozen=True, slots=True)
class Step:
    """One task of a plan: `inputs` by value, `refs` by the id of the earlier step whose result is meant.

    `demand` is None for work the front does itself, such as a merge. `items` is how many of the request's items it
    does, where these can be counted. With `hedge` it may be started twice if it is late.
    """

    id: StepId
    task: TaskName
    inputs: dict[str, Json] = field(default_factory=dict)
    refs: dict[str, StepId] = field(default_factory=dict)
    demand: Demand | None = None
    items: int = 0
    hedge: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The DAG of one request; the last step's result is the answer.

    Raises:
        ValueError: no step, two steps of one id, or a reference that does not point back.
    """

    flow: str
    model: ModelName
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        seen: set[StepId] = set()
        for step in self.steps:
            if step.id in seen:
                raise ValueError(f"two steps are called {step.id!r}")
            for parent in step.refs.values():
                if parent not in seen:
                    raise ValueError(f"step {step.id!r} refers to {parent!r}, which does not come before it")
            seen.add(step.id)
        if not self.steps:
            raise ValueError("a plan needs at least one step")

    def to_json(self) -> bytes:
        """The plan as JSON text."""
        return _ADAPTER.dump_json(self)

    @staticmethod
    def from_json(text: bytes | str) -> "Plan":
        """Read a plan back.

        Raises:
            InvalidRequest: the text is not a plan.
        """
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise InvalidRequest(f"this is not a plan: {error}") from error


_ADAPTER = TypeAdapter(Plan)
