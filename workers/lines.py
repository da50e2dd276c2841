"""Who waits for a model: a line for its slots, first come first served, and a count of those who wait for its load."""

import asyncio
from collections import deque

from infra.errors import QueueFull
from workers.live import Engine
from workers.types import ModelEntry

_MOST_S = 60.0
_WEIGHT = 0.2
"""Of the newest request in the mean time that a request takes."""


_Slot = tuple[Engine, int]
"""A slot that was handed over, and the engine's epoch in that moment: it may be lost before its taker wakes."""


class SlotLine:
    """The waiting line of one model."""

    def __init__(self) -> None:
        self.for_load = 0
        self._waiters: deque[asyncio.Future[_Slot | None]] = deque()
        self._mean_service_s = 1.0

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self, entry: ModelEntry, timeout_s: float) -> Engine | None:
        """Wait for a slot that is handed over; None means: look again, the engine has gone.

        Raises:
            QueueFull: the line is full, or nothing came free in time.
        """
        if len(self._waiters) >= entry.queue_max_waiting:
            raise QueueFull(
                f"model '{entry.name}' has its {entry.queue_max_waiting} waiting requests already; try again later",
                retry_after_s=self._back_in_s(entry),
            )
        waiter: asyncio.Future[_Slot | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                slot = await waiter
        except TimeoutError as error:
            self._leave(waiter)
            raise QueueFull(
                f"model '{entry.name}' had no free slot in time; try again later", retry_after_s=self._back_in_s(entry)
            ) from error
        except asyncio.CancelledError:
            self._leave(waiter)
            raise
        if slot is None or slot[0].epoch != slot[1]:
            return None
        engine = slot[0]
        if engine.state != "ready":
            engine.in_flight -= 1
            return None
        return engine

    def hand_over(self, engine: Engine) -> bool:
        """Give a taken slot to whoever has waited longest; False if nobody waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result((engine, engine.epoch))
                return True
        return False

    def look_again(self) -> None:
        """Wake everybody: what they wait for is not coming."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def served(self, seconds: float) -> None:
        """Note how long a request took."""
        self._mean_service_s += _WEIGHT * (seconds - self._mean_service_s)

    def _leave(self, waiter: asyncio.Future[_Slot | None]) -> None:
        """A waiter that is gone keeps no place, nor a slot that was handed to it in the same moment."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif not waiter.cancelled() and (slot := waiter.result()) is not None and slot[0].epoch == slot[1]:
            engine = slot[0]
            if engine.state != "ready" or not self.hand_over(engine):
                engine.in_flight -= 1

    def _back_in_s(self, entry: ModelEntry) -> float:
        return min(_MOST_S, max(1.0, self._mean_service_s * (1 + len(self._waiters)) / entry.max_instances))
