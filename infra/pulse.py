"""The sign of life that a process gives its supervisor: a byte now and then, from the event loop that does its work.

A process that is stopped, or whose loop is blocked, gives none. One that is busy gives it late, which is allowed.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final

from infra.settings import pulse_fd

PULSE_S: Final = 4.0
"""Seconds between two signs of life."""

Well = Callable[[], Awaitable[bool]]
"""Whether the process does what it is there for, as far as it can tell itself; must end by itself, and not raise."""


async def keep_pulse(well: Well | None = None, *, every_s: float = PULSE_S) -> None:
    """Give signs of life for ever, each only if the process is `well`. Returns at once where nobody waits for them, and
    when nobody does any more."""
    descriptor = pulse_fd()
    while descriptor is not None:
        if well is None or await well():
            try:
                os.write(descriptor, b".")
            except BlockingIOError:
                pass  # they were not read for hours: those that are in the pipe say the same
            except OSError:
                return  # the supervisor is gone, and so is this process soon
        await asyncio.sleep(every_s)
