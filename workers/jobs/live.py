"""The jobs that run in this process, and how each of them is to end if it is ended from outside."""

import asyncio
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from infra.types import PoolId

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

End = Literal["cancelled", "stopped"]
"""Cancelled by a person; stopped because this process ends."""


@dataclass(slots=True, eq=False)
class Job:
    """One flow run under way. `device` is the card that its work pool was made for by an operator, where it was."""

    run: UUID
    device: PoolId | None = None
    started_at: float = field(default_factory=time.time)
    task: asyncio.Task[Any] | None = None
    end: End | None = None
    said: "State[Any] | None" = None
    """The last state that its own code asked for: Prefect may not have heard it."""

    def stop(self, end: End) -> None:
        """End it from outside, once. One that has no task yet gets none that begins."""
        if self.end is None:
            self.end = end
            if self.task is not None:
                self.task.cancel()


CURRENT: ContextVar[Job] = ContextVar("current job")
"""The job that the running code belongs to."""
