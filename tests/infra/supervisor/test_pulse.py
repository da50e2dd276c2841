"""Signs of life over a pipe, and the looks that miss them."""

import asyncio
import os
import time
from collections.abc import Iterator

import pytest

from infra.supervisor.pulse import Pulse, PulsePolicy

QUICK = PulsePolicy(look_s=0.02, misses=5, first_misses=20)


@pytest.fixture
def pulse() -> Iterator[Pulse]:
    made = Pulse()
    yield made
    made.close()


async def beat(pulse: Pulse, times: int) -> None:
    for _ in range(times):
        os.write(pulse.theirs, b".")
        await asyncio.sleep(0.01)


async def test_a_pulse_is_lost_some_looks_after_its_last_beat(pulse: Pulse) -> None:
    watch = asyncio.create_task(pulse.lost(QUICK))
    await beat(pulse, 30)
    assert not watch.done()
    assert await asyncio.wait_for(watch, 5) == pytest.approx(0.1)
    pulse.handed_over()


async def test_the_first_beat_is_waited_for_longer(pulse: Pulse) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert await asyncio.wait_for(pulse.lost(QUICK), 5) == pytest.approx(0.4)
    assert loop.time() - began_s >= 0.4
    pulse.handed_over()


async def test_a_process_that_closes_its_end_gives_no_more_signs(pulse: Pulse) -> None:
    await beat(pulse, 1)
    pulse.handed_over()
    assert await asyncio.wait_for(pulse.lost(QUICK), 5) == pytest.approx(0.1)


async def test_a_watch_that_is_called_off_leaves_the_pipe_alone(pulse: Pulse) -> None:
    watch = asyncio.create_task(pulse.lost(QUICK))
    await asyncio.sleep(0.01)
    watch.cancel()
    await asyncio.wait([watch])
    await beat(pulse, 3)
    assert os.read(pulse._ours, 10) == b"..."
    pulse.handed_over()


async def test_nobody_is_judged_for_a_time_in_which_the_supervisor_stood_still(pulse: Pulse) -> None:
    watch = asyncio.create_task(pulse.lost(QUICK))
    await beat(pulse, 2)
    for _ in range(3):
        time.sleep(0.15)  # noqa: ASYNC251  # longer than a child may be silent
        await beat(pulse, 1)
    assert not watch.done()
    watch.cancel()
    await asyncio.wait([watch])
    pulse.handed_over()
