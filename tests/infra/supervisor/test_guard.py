"""The guard's handle: what it is told, its end, its successor. What it does when we die: `test_supervise.py`."""

import signal
import subprocess

import pytest

from infra.supervisor.guard import Guard
from tests.infra.supervisor.programs import SLEEP, alive, kill, python, until


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(python(SLEEP), start_new_session=True)


def reap(process: "subprocess.Popen[bytes]") -> int:
    return process.wait(5)


async def test_groups_that_are_left_at_the_end_are_killed() -> None:
    left, taken_back = sleeper(), sleeper()
    async with Guard() as guard:
        guard.add(left.pid)
        guard.add(taken_back.pid)
        guard.discard(taken_back.pid)
        guard.discard(123456)
        pid = guard.pid
        assert left.poll() is None
    assert reap(left) == -signal.SIGKILL
    assert taken_back.poll() is None
    taken_back.kill()
    reap(taken_back)
    assert pid is not None
    assert not alive(pid)


async def test_a_successor_knows_what_the_killed_one_knew(caplog: pytest.LogCaptureFixture) -> None:
    left, taken_back = sleeper(), sleeper()
    async with Guard() as guard:
        guard.add(left.pid)
        guard.add(taken_back.pid)
        first = guard.pid
        kill(first)
        guard.discard(taken_back.pid)  # told to a dead one: no error
        await until(lambda: guard.pid != first)
        assert "the guard process ended" in caplog.text
        assert left.poll() is None
    assert reap(left) == -signal.SIGKILL
    assert taken_back.poll() is None
    taken_back.kill()
    reap(taken_back)


def test_a_guard_that_has_not_begun_has_no_process() -> None:
    guard = Guard()
    guard.add(1)  # kept for the process that comes
    assert guard.pid is None
