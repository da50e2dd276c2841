"""Small programs that stand in for children, and ways to look at processes."""

import asyncio
import os
import sys
import time
from collections.abc import Callable

import psutil

SLEEP = "import time; time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
WITH_GRANDCHILD = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
    "print('grandchild', child.pid, flush=True)\n"
    "time.sleep(600)"
)

BEATING = "import os, time\nwhile True: os.write(int(os.environ['CODERAI_PULSE_FD']), b'.'); time.sleep(0.01)"
"""Gives signs of life."""


def python(code: str, *arguments: str) -> tuple[str, ...]:
    """The command line of a small Python program."""
    return (sys.executable, "-I", "-S", "-c", code, *arguments)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait for something that is true soon; the test fails when it never is."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not become true in time"
        await asyncio.sleep(0.01)


def kill(pid: int | None) -> None:
    """SIGKILL to a process that must exist."""
    assert pid is not None
    os.kill(pid, 9)
