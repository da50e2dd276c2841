"""What every job works with: given once by the worker process, before its workers begin."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from flows.job_steps import SlotGiver
from infra.batch_rows import Batches
from infra.blobs import Blobs
from infra.response_events import ResponseEvents
from infra.response_rows import BackgroundResponses
from infra.run_files import RunFiles
from infra.types import Json, KeyName
from tasks.types import Task as StepTask
from workers.transport import Transport


class Planner(Protocol):
    """Who makes the plan of a request: the front."""

    async def plan(
        self, flow: str, request: dict[str, Json], key: KeyName, sizes: tuple[int, ...] | None = None
    ) -> bytes:
        """The plan as JSON text; raises what makes it impossible. `sizes`: of the parts, if they must be as before."""
        ...


@dataclass(frozen=True, slots=True)
class Office:
    """What every job works with. `stores` hold requests that are too large for a parameter, and files; the first one
    takes what steps make."""

    planner: Planner
    slots: SlotGiver
    transport: Transport
    tasks: Mapping[str, StepTask]
    files: RunFiles
    stores: tuple[Blobs, ...]
    batches: Batches
    responses: BackgroundResponses
    events: ResponseEvents


OFFICE: ContextVar[Office] = ContextVar("office")
"""Set once, by the worker process, before its workers begin."""
