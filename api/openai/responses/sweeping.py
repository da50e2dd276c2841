"""Removes what was told of responses in the background that are no more: they were deleted, or their time had come."""

import asyncio
import logging
from typing import Final

from infra.errors import CoderAIError
from infra.response_events import ResponseEvents
from infra.response_rows import BackgroundResponses

log = logging.getLogger("api.openai.responses")

EVERY_S: Final = 600.0


async def keep_sweeping(rows: BackgroundResponses, events: ResponseEvents, every_s: float = EVERY_S) -> None:
    """Look every few minutes, for ever; a database that does not answer is asked again the next time."""
    while True:
        try:
            await asyncio.to_thread(sweep, rows, events)
        except (CoderAIError, OSError) as error:
            log.warning("the events of responses could not be looked through: %s", error)
        await asyncio.sleep(every_s)


def sweep(rows: BackgroundResponses, events: ResponseEvents) -> int:
    """Remove the files whose response there is no more; how many went. Blocks.

    Raises:
        DatabaseUnusable: the rows cannot be read.
        OSError: the files cannot be listed or removed.
    """
    gone = rows.gone(events.known())
    for response in gone:
        events.forget(response)
    return len(gone)
