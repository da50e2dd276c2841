"""The supervisor's handle on the guard process, which outlives it by a moment and kills what it left behind."""

import asyncio
import contextlib
import logging
import sys
from pathlib import Path

_log = logging.getLogger(__name__)

SCRIPT = Path(__file__).with_name("spawn.py")
PYTHON = (sys.executable, "-I", "-S", "-u", str(SCRIPT))
"""Isolated, without site packages: starts in a few milliseconds and imports nothing by accident."""


class Guard:
    """Tells the guard process which process groups are ours; starts it again if somebody kills it.

    One guard serves any number of supervisors of this process. Use as `async with Guard() as guard`.
    """

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Guard":
        await self._spawn()
        self._watcher = asyncio.create_task(self._keep_alive(), name="guard")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._watcher is not None
        self._watcher.cancel()
        await asyncio.wait([self._watcher])
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()

    @property
    def pid(self) -> int | None:
        """The guard's own process."""
        return None if self._process is None else self._process.pid

    def add(self, group: int) -> None:
        """Kill this group when we die."""
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def discard(self, group: int) -> None:
        """The group is gone; its number may be somebody else's soon."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # a dead guard is replaced, and told everything, by the watcher
                self._process.stdin.write(line.encode())

    async def _spawn(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *PYTHON,
            "guard",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env={},
        )
        for group in self._groups:
            self._tell(f"+{group}\n")

    async def _keep_alive(self) -> None:
        while True:
            assert self._process is not None
            await self._process.wait()
            _log.warning("the guard process ended; starting another")
            await asyncio.sleep(0.2)
            await self._spawn()
