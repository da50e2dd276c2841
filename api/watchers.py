"""What runs beside the requests for as long as the front lives."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("api.watchers")

AGAIN_S = 1.0
"""Seconds between a watcher's failure and its next start."""


async def keep_alive(name: str, watch: Callable[[], Awaitable[None]], *, again_s: float = AGAIN_S) -> None:
    """Run a watcher for ever: one that fails, or ends, is told of in the log and started again. `name` says which.

    Raises:
        CancelledError: the front is closing.
    """
    while True:
        try:
            await watch()
            log.error("%s ended; it is started again", name)
        except Exception:
            log.exception("%s failed; it is started again", name)
        await asyncio.sleep(again_s)
