"""A process' signs of life, as whoever reads its pipe has them."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from infra.pulse import keep_pulse
from infra.settings import PULSE_FD_VARIABLE


class Pipe:
    """The supervisor's end, and this process's."""

    def __init__(self) -> None:
        self.ours, self.theirs = os.pipe()
        os.set_blocking(self.ours, False)
        os.set_blocking(self.theirs, False)
        self.open = {self.ours, self.theirs}

    def close(self, end: int) -> None:
        self.open.discard(end)
        os.close(end)

    async def beats(self, number: int) -> int:
        """How many there are, once there are so many."""
        count = 0
        async with asyncio.timeout(5):
            while count < number:
                await asyncio.sleep(0.01)
                try:
                    count += len(os.read(self.ours, 1 << 20))
                except BlockingIOError:
                    continue
        return count


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    made = Pipe()
    monkeypatch.setenv(PULSE_FD_VARIABLE, str(made.theirs))
    yield made
    for end in tuple(made.open):
        made.close(end)


async def test_beats_come_one_after_another(pipe: Pipe) -> None:
    pulse = asyncio.create_task(keep_pulse(every_s=0.01))
    assert await pipe.beats(3) < 50
    pulse.cancel()
    await asyncio.wait([pulse])


async def test_who_is_not_well_gives_none(pipe: Pipe) -> None:
    well, asked = False, 0

    async def ask() -> bool:
        nonlocal asked
        asked += 1
        return well

    pulse = asyncio.create_task(keep_pulse(ask, every_s=0.01))
    async with asyncio.timeout(5):
        while asked < 5:
            await asyncio.sleep(0.01)
    with pytest.raises(BlockingIOError):
        os.read(pipe.ours, 1)
    well = True
    assert await pipe.beats(1) >= 1
    pulse.cancel()
    await asyncio.wait([pulse])


async def test_a_supervisor_that_does_not_read_holds_nobody_up(pipe: Pipe) -> None:
    full = os.write(pipe.theirs, b"." * (1 << 20))
    with pytest.raises(BlockingIOError):
        os.write(pipe.theirs, b".")
    pulse = asyncio.create_task(keep_pulse(every_s=0.01))
    await asyncio.sleep(0.05)
    assert not pulse.done()
    assert await pipe.beats(full + 1) > full
    pulse.cancel()
    await asyncio.wait([pulse])


async def test_it_ends_with_its_supervisor(pipe: Pipe) -> None:
    pipe.close(pipe.ours)
    await asyncio.wait_for(keep_pulse(every_s=0.01), 5)


async def test_where_nobody_waits_for_it_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PULSE_FD_VARIABLE, raising=False)
    await asyncio.wait_for(keep_pulse(), 5)
