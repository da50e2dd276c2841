"""One subscription to Prefect's events: a run that waits is fetched at once, one that is cancelled ends at once.

What happens while the connection is down is found by the sweep that follows every new one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from prefect.events import Event
from prefect.events.clients import PrefectEventSubscriber
from prefect.events.filters import EventFilter, EventNameFilter

log = logging.getLogger(__name__)

_RUN: Final = "prefect.flow-run."
_POOL: Final = "prefect.work-pool."
CANCELLING: Final = "prefect.flow-run.Cancelling"
CANCELLED: Final = "prefect.flow-run.Cancelled"
SUSPENDED: Final = "prefect.flow-run.Suspended"
WAITING: Final = ("prefect.flow-run.AwaitingRetry", "prefect.flow-run.Scheduled", "prefect.flow-run.Late")
OURS: Final = (
    *(f"prefect.work-pool.{change}" for change in ("created", "updated", "deleted", "ready")),
    "prefect.deployment.deleted",
)
"""What may have to be put right. A resumed pool is told as `ready`."""
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 5.0


class Listener(Protocol):
    """Who acts on events; must not block."""

    def waiting(self, pool: UUID) -> None:
        """A run of the pool waits for a worker."""
        ...

    def cancelling(self, run: UUID, occurred_at: float) -> None:
        """A run is to end; `occurred_at` in seconds since the epoch."""
        ...

    def cancelled(self, run: UUID, occurred_at: float) -> None:
        """A run has that end: by its own word, or without being asked, as one that was suspended."""
        ...

    def suspended(self, run: UUID) -> None:
        """A run is to end before its next step, to go on later."""
        ...

    def changes(self) -> None:
        """A work pool was made, deleted, paused, resumed, or changed otherwise; or a deployment was deleted."""
        ...


@dataclass(frozen=True, slots=True)
class Subscription:
    """Listens for ever. `connected` is awaited after each connection, before its first event is looked at."""

    listener: Listener
    connected: Callable[[], Awaitable[None]]

    async def keep(self) -> None:
        """Connect, listen, and connect again, with growing pauses while nobody answers."""
        pause_s, told = FIRST_PAUSE_S, ""
        while True:
            try:
                async with PrefectEventSubscriber(filter=_filter(), reconnection_attempts=0) as events:
                    await self.connected()
                    pause_s, told = FIRST_PAUSE_S, ""
                    async for event in events:
                        hear(event, self.listener)
            except Exception as error:  # noqa: BLE001  # whatever it is, the next connection sweeps up after it
                words = str(error) or type(error).__name__
                if words != told:
                    log.warning("Prefect's events cannot be heard: %s; trying again", words)
                told = words
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def hear(event: Event, listener: Listener) -> None:
    """Tell the listener what an event means for it."""
    if event.event in OURS:
        listener.changes()
        return
    run = _id_in(event.resource.id, _RUN)
    if run is None:
        return
    if event.event == CANCELLING:
        listener.cancelling(run, event.occurred.timestamp())
        return
    if event.event == CANCELLED:
        listener.cancelled(run, event.occurred.timestamp())
        return
    if event.event == SUSPENDED:
        listener.suspended(run)
        return
    for related in event.related:
        pool = _id_in(related.id, _POOL)
        if pool is not None:
            listener.waiting(pool)


def _id_in(resource: str, prefix: str) -> UUID | None:
    if not resource.startswith(prefix):
        return None
    try:
        return UUID(resource.removeprefix(prefix))
    except ValueError:
        return None


def _filter() -> EventFilter:
    return EventFilter(event=EventNameFilter(name=[CANCELLING, CANCELLED, SUSPENDED, *WAITING, *OURS]))
