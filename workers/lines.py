"""Who waits for a model: a line for its slots, and a count of those who wait for its load.

First come, first served, but for the patient: so many who come after one of them are served before it, and no more, so
that a heap of jobs delays no client, nor clients a job for ever.
"""

import asyncio
import itertools
from bisect import insort
from collections.abc import Callable

from infra.errors import QueueFull
from workers.live import Engine
from workers.types import ModelEntry

_MOST_S = 60.0
_WEIGHT = 0.2
"""Of the newest request in the mean time that a request takes."""
OVERTAKEN = 64
"""How many who came later may go before one that is patient."""

_Slot = tuple[Engine, int]
"""A slot that was handed over, and the engine's epoch in that moment: it may be lost before its taker wakes."""
_Waiter = asyncio.Future[_Slot | None]
_Place = tuple[int, int, _Waiter]
"""Its turn, of all that wait, for whatever model; the number of its coming, which tells equal turns apart; itself."""
_NUMBERS = itertools.count()


class SlotLine:
    """The waiting line of one model. `pass_on` gets a slot that was handed over and not taken: by default it is the
    next one's, or free."""

    def __init__(self, pass_on: "Callable[[SlotLine, Engine], None] | None" = None) -> None:
        self.for_load = 0
        self._waiters: list[_Place] = []
        self._mean_service_s = 1.0
        self._pass_on = pass_on or SlotLine.next_or_free

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self, entry: ModelEntry, timeout_s: float, *, patient: bool = False) -> Engine | None:
        """Wait for a slot that is handed over; None means: look again, the engine has gone. The `patient` take no
        place from others, and find one whenever they come: the worker process bounds how many there are.

        Raises:
            QueueFull: the line is full, or nothing came free in time.
        """
        if not patient and sum(turn == number for turn, number, _ in self._waiters) >= entry.queue_max_waiting:
            raise QueueFull(
                f"model '{entry.name}' has its {entry.queue_max_waiting} waiting requests already; try again later",
                retry_after_s=self._back_in_s(entry),
            )
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        number = next(_NUMBERS)
        place = (number + OVERTAKEN * patient, number, waiter)
        insort(self._waiters, place)
        try:
            async with asyncio.timeout(timeout_s):
                slot = await waiter
        except TimeoutError as error:
            self._leave(place)
            raise QueueFull(
                f"model '{entry.name}' had no free slot in time; try again later", retry_after_s=self._back_in_s(entry)
            ) from error
        except asyncio.CancelledError:
            self._leave(place)
            raise
        if slot is None or slot[0].epoch != slot[1]:
            return None
        engine = slot[0]
        if engine.state != "ready":
            self._pass_on(self, engine)
            return None
        return engine

    def first(self) -> int | None:
        """The turn of whoever comes next; None if nobody waits."""
        while self._waiters and self._waiters[0][-1].done():
            del self._waiters[0]  # it is leaving
        return self._waiters[0][0] if self._waiters else None

    def hand_over(self, engine: Engine) -> bool:
        """Give a taken slot to whoever comes next; False if nobody waits."""
        while self._waiters:
            waiter = self._waiters.pop(0)[-1]
            if not waiter.done():
                waiter.set_result((engine, engine.epoch))
                return True
        return False

    def next_or_free(self, engine: Engine) -> None:
        """A taken slot is not needed any more: it is the next one's, or free."""
        if engine.state != "ready" or not self.hand_over(engine):
            engine.in_flight -= 1

    def look_again(self) -> None:
        """Wake everybody: what they wait for is not coming."""
        waiters, self._waiters = self._waiters, []
        for _turn, _number, waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def served(self, seconds: float) -> None:
        """Note how long a request took."""
        self._mean_service_s += _WEIGHT * (seconds - self._mean_service_s)

    def _leave(self, place: _Place) -> None:
        """A waiter that is gone keeps no place, nor a slot that was handed to it in the same moment."""
        waiter = place[-1]
        if place in self._waiters:
            self._waiters.remove(place)
        elif not waiter.cancelled() and (slot := waiter.result()) is not None and slot[0].epoch == slot[1]:
            self._pass_on(self, slot[0])

    def _back_in_s(self, entry: ModelEntry) -> float:
        return min(_MOST_S, max(1.0, self._mean_service_s * (1 + len(self._waiters)) / entry.max_instances))
