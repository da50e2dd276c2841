"""A part that is late is started once more on an idle engine; the first answer wins, the other try is cancelled."""

import asyncio
import statistics
from collections.abc import Callable, Coroutine
from typing import Any, Final

from infra.clock import Clock, monotonic
from infra.errors import NoCapacity
from tasks.types import TaskResult

LATE_TIMES: Final = 2.0
"""A part is late when it takes this many times the median of those that have finished …"""
LATE_S: Final = 1.0
"""… and at least so long."""
_LOOK_S: Final = 0.1

Try = Callable[[bool], Coroutine[Any, Any, TaskResult]]
"""One try of a part; True for the spare one, which raises NoCapacity while no engine is idle."""


class Pace:
    """How long the parts of one request took."""

    def __init__(self) -> None:
        self._took_s: list[float] = []

    def note(self, seconds: float) -> None:
        """A part has finished."""
        self._took_s.append(seconds)

    def is_late(self, seconds: float) -> bool:
        """Whether a part that has run so long is late."""
        took_s = self._took_s
        return bool(took_s) and seconds >= max(LATE_S, LATE_TIMES * statistics.median(took_s))


async def hedged(attempt: Try, pace: Pace, clock: Clock = monotonic) -> TaskResult:
    """The first result of one or two tries.

    Raises:
        CoderAIError: what the first try raised, if none has a result.
    """
    began_s = clock()
    first: asyncio.Future[TaskResult] = asyncio.ensure_future(attempt(False))
    spare: asyncio.Future[TaskResult] | None = None
    running = {first}
    may_spare = True
    try:
        while running:
            done, running = await asyncio.wait(
                running, timeout=_LOOK_S if may_spare else None, return_when=asyncio.FIRST_COMPLETED
            )
            won = [each for each in done if each.exception() is None]
            if won:
                return won[0].result()
            if spare in done:
                may_spare, spare = isinstance(spare.exception(), NoCapacity), None
            if may_spare and spare is None and first in running and pace.is_late(clock() - began_s):
                spare = asyncio.ensure_future(attempt(True))
                running.add(spare)
        return first.result()
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
