"""The launcher and the guard, run as the scripts they are."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from infra.supervisor.guard import PYTHON
from infra.supervisor.spawn import CANNOT_EXECUTE, guard
from tests.infra.supervisor.programs import SLEEP, alive, kill, python, until


def sleeper() -> "subprocess.Popen[bytes]":
    """A process in a group of its own."""
    return subprocess.Popen(python(SLEEP), start_new_session=True)


def test_the_guard_kills_the_groups_that_remain() -> None:
    kept, gone = sleeper(), sleeper()
    guard([f"+{kept.pid}\n", f"+{gone.pid}\n", f"-{gone.pid}\n", "-999999999\n"])
    assert kept.wait(5) == -signal.SIGKILL
    assert gone.poll() is None
    gone.kill()
    gone.wait(5)


def test_the_guard_survives_groups_that_are_gone_already() -> None:
    ended, kept = sleeper(), sleeper()
    ended.kill()
    ended.wait(5)
    guard([f"+{ended.pid}\n", f"+{kept.pid}\n"])
    assert kept.wait(5) == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc tells when the guard is ready for a signal")
@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_guard_outlives_the_signals_that_end_its_supervisor(ignored: signal.Signals) -> None:
    watched = sleeper()
    with subprocess.Popen([*PYTHON, "guard"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"+%d\n" % watched.pid)
        process.stdin.flush()
        while not _ignores(process.pid, ignored):
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(ignored)
        assert watched.poll() is None
        process.stdin.close()
        assert process.wait(5) == 0
    assert watched.wait(5) == -signal.SIGKILL


def _ignores(pid: int, number: signal.Signals) -> bool:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        (mask,) = (int(line.split()[1], 16) for line in status if line.startswith("SigIgn:"))
    return bool(mask >> (number - 1) & 1)


def test_the_launcher_becomes_the_program() -> None:
    done = subprocess.run(
        [*PYTHON, "run", str(os.getpid()), *python("import sys; print(sys.argv[1:]); sys.exit(7)", "a b", "{c}")],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (7, "['a b', '{c}']\n")


def test_a_program_starts_with_its_signals_as_they_were_made() -> None:
    """What this process ignores, a child must not: SIGTERM is how it is stopped."""
    code = "import signal; print([signal.getsignal(n) is signal.SIG_DFL for n in (15, 1, 13)])"
    done = subprocess.run(
        [*PYTHON, "run", str(os.getpid()), *python(code)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    )
    assert done.stdout == "[True, True, False]\n"  # Python itself ignores SIGPIPE


def test_a_program_that_cannot_be_run() -> None:
    done = subprocess.run([*PYTHON, "run", str(os.getpid()), "/nowhere/x"], capture_output=True, text=True)
    assert done.returncode == CANNOT_EXECUTE
    assert done.stderr == "cannot run /nowhere/x: No such file or directory\n"


@pytest.mark.skipif(sys.platform != "linux", reason="it asks the Linux kernel to bind it to its parent")
def test_a_launcher_whose_parent_has_died_meanwhile_starts_nothing() -> None:
    done = subprocess.run(
        [*PYTHON, "run", str(os.getpid() + 1), *python("print('started')")], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems leave it to the guard")
async def test_the_program_dies_with_its_parent() -> None:
    launch = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([*sys.argv[1:5], 'run', str(os.getpid()), *sys.argv[5:]], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    parent = await asyncio.create_subprocess_exec(
        *python(launch, *PYTHON[:4], PYTHON[4], *python(SLEEP)), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(await asyncio.wait_for(parent.stdout.readline(), 10))
    assert alive(child)
    kill(parent.pid)
    await parent.wait()
    await until(lambda: not alive(child))
