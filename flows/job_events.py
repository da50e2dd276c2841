"""What a response in the background tells while a job makes it, kept for those who follow it."""

import asyncio
import logging
from typing import Final

from infra.clock import Clock, monotonic
from infra.errors import DiskFull
from infra.response_events import EventsWriter, ResponseEvents
from infra.types import ResponseId
from tasks.responses.told import Told

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.2
"""The longest time for which pieces of a text are gathered before they are told."""
_SHARE: Final = 0.1
"""Of the time that the text has taken so far: a short answer is not held up for what a long one does not notice."""


class JobEvents:
    """The channel of such a job. What comes is written at once; then the engine's next pieces are left in the
    connection for a moment, so that a piece alone costs neither a turn of this process nor a write.

    Where nothing can be written, the response is made all the same, and told when it is over.
    """

    started = False
    """An engine that breaks off may be followed by another one: that its answer is begun anew is told."""

    def __init__(self, response: ResponseId, writer: EventsWriter, told: Told, clock: Clock = monotonic) -> None:
        self._response = response
        self._writer = writer
        self._told = told
        self._clock = clock
        self._kept = True
        self.first_write_s: float | None = None
        """When the first piece came, by the clock."""

    @property
    def size_bytes(self) -> int:
        """What is kept."""
        return self._writer.size_bytes

    async def write(self, data: bytes) -> None:
        """See `Channel.write`."""
        if self.first_write_s is None:
            self.first_write_s = self._clock()
        if not self._kept:
            return
        self._kept = await asyncio.to_thread(self._writer.append, self._told.lines(data))
        if not self._kept:
            log.warning("the events of the response %s cannot be kept any more; it goes on", self._response)
        elif self._told.speaking:
            await asyncio.sleep(min(PAUSE_S, _SHARE * (self._clock() - self.first_write_s)))

    async def close(self, *, over: bool) -> None:
        """Have done with it; `over`: no other try will tell more."""
        await asyncio.to_thread(self._writer.close, over=over)


async def open_events(events: ResponseEvents, response: ResponseId) -> JobEvents | None:
    """The channel of a job that makes a response; it goes on after what an earlier try has told. None: nothing can be
    written."""
    try:
        writer, told = await asyncio.to_thread(_taken_over, events, response)
    except (OSError, DiskFull) as error:
        log.warning("the events of the response %s cannot be kept: %s", response, error)
        return None
    return JobEvents(response, writer, told)


def _taken_over(events: ResponseEvents, response: ResponseId) -> tuple[EventsWriter, Told]:
    """The writer, and what is told already.

    Raises:
        OSError, DiskFull: nothing can be read or written.
    """
    writer = events.write(response)
    try:
        return writer, _told_by(writer)
    except OSError:
        writer.close(over=False)
        raise


def _told_by(writer: EventsWriter) -> Told:
    """What is told already; a line that was torn is taken away."""
    told, size_bytes = Told(), 0
    for line in writer.content().splitlines(keepends=True):
        try:
            if not line.endswith(b"\n"):
                break
            told.read(line)
        except ValueError:
            break
        size_bytes += len(line)
    writer.cut(size_bytes)
    return told
