"""The jobs that run in this process, and how each of them is to end if it is ended from outside."""

import asyncio
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

from infra.types import PoolId

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

End = Literal["cancelled", "stopped"]
"""Cancelled by a person; stopped because this process ends."""
BEGIN_S: Final = 0.3
"""Seconds in which a job that is to end may still come to its own code."""


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
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """This process has nothing more to do with it."""
    _working: bool = False
    _late: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Its own code begins.

        Raises:
            CancelledError: it was ended meanwhile.
        """
        self._working = True
        if self._late is not None:
            self._late.cancel()
        if self.end is not None:
            raise asyncio.CancelledError

    def stop(self, end: End) -> None:
        """End it from outside, once. One that has no task yet gets none that begins.

        Prefect's engine, cancelled around our code, says that the run has crashed, and automations hear it: before our
        code it is given a moment to come to it, after it the run ends as it has.
        """
        if self.end is not None:
            return
        self.end = end
        if self.task is None or self.said is not None:
            return
        if self._working:
            self.task.cancel()
        else:
            self._late = asyncio.get_running_loop().call_later(BEGIN_S, self.task.cancel)


CURRENT: ContextVar[Job] = ContextVar("current job")
"""The job that the running code belongs to."""
