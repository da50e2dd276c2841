"""A late part is started once more; the first answer wins, and nothing goes on afterwards."""

import asyncio

import pytest

from flows.hedge import Pace, hedged
from infra.errors import EngineFailed, NoRoom
from tasks.types import TaskResult


class Tries:
    """Tries of one part: each waits `seconds`, and ends with a result or an error; counts what still runs."""

    def __init__(self, first: tuple[float, object], *spares: tuple[float, object]) -> None:
        self._first, self._spares = first, list(spares)
        self.spares = 0
        self.running = 0

    async def __call__(self, spare: bool) -> TaskResult:
        if spare:
            self.spares += 1
        seconds, end = self._spares.pop(0) if spare else self._first
        self.running += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self.running -= 1
        if isinstance(end, BaseException):
            raise end
        return TaskResult(str(end))


class Clock:
    """A clock that leaps ten seconds at each look."""

    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 10
        return self.now_s


def pace(*took_s: float) -> Pace:
    made = Pace()
    for seconds in took_s:
        made.note(seconds)
    return made


@pytest.mark.parametrize(
    ("took_s", "seconds", "late"),
    [((), 99, False), ((2.0,), 3.9, False), ((2.0,), 4.0, True), ((0.1,), 0.9, False), ((0.1,), 1.0, True)],
)
def test_late_is_twice_the_median_and_a_second(took_s: tuple[float, ...], seconds: float, late: bool) -> None:
    assert pace(*took_s).is_late(seconds) is late
    assert pace(1.0, 2.0, 30.0).is_late(4.0)


async def test_a_part_in_time_is_not_started_twice() -> None:
    tries = Tries((0.05, "first"))
    assert (await hedged(tries, pace(1.0))).value == "first"
    assert (tries.spares, tries.running) == (0, 0)


async def test_the_spare_wins_and_the_late_one_is_cancelled() -> None:
    tries = Tries((30, "first"), (0.01, "spare"))
    assert (await hedged(tries, pace(1.0), Clock())).value == "spare"
    assert (tries.spares, tries.running) == (1, 0)


async def test_the_late_one_may_win_all_the_same() -> None:
    tries = Tries((0.3, "first"), (30, "spare"))
    assert (await hedged(tries, pace(1.0), Clock())).value == "first"
    assert (tries.spares, tries.running) == (1, 0)


async def test_while_nobody_is_idle_it_is_tried_again() -> None:
    tries = Tries((30, "first"), (0, NoRoom("busy")), (0, NoRoom("busy")), (0.01, "spare"))
    assert (await hedged(tries, pace(1.0), Clock())).value == "spare"
    assert tries.spares == 3


async def test_a_spare_that_fails_is_the_only_one() -> None:
    tries = Tries((0.5, "first"), (0, EngineFailed("it died")))
    assert (await hedged(tries, pace(1.0), Clock())).value == "first"
    assert tries.spares == 1


async def test_the_spare_goes_on_when_the_late_one_fails() -> None:
    tries = Tries((0.3, EngineFailed("it died")), (0.5, "spare"))
    assert (await hedged(tries, pace(1.0), Clock())).value == "spare"


async def test_if_both_fail_the_first_one_s_reason_counts() -> None:
    tries = Tries((0.3, EngineFailed("first")), (0.4, EngineFailed("spare")))
    with pytest.raises(EngineFailed, match="first"):
        await hedged(tries, pace(1.0), Clock())


async def test_whoever_cancels_it_cancels_both() -> None:
    tries = Tries((30, "first"), (30, "spare"))
    running = asyncio.create_task(hedged(tries, pace(1.0), Clock()))
    while tries.running < 2:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert tries.running == 0
