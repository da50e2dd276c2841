"""The events of a response that is made in the background, for whoever follows it: what there is, then what comes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from starlette.responses import StreamingResponse

from api.openai.responses import store
from api.openai.responses.tail import Tail
from api.services import Services
from infra.clock import monotonic
from infra.errors import CoderAIError
from infra.response_events import ResponseEvents
from infra.types import ResponseId, RunId
from tasks.responses.events import encoded

log = logging.getLogger("api.openai.responses")

LOOK_S: Final = 0.2
"""Seconds between two looks at a response that is followed."""
QUIET_S: Final = 5.0
"""Seconds of silence after which a comment is sent: proxies see a connection that lives, and we a client that left."""
_UNREADABLE: Final = "what is told of this response cannot be read now: come back, or fetch it without 'stream'"
_ALIVE: Final = b": it is being made\n\n"


@dataclass(frozen=True, slots=True)
class Follower:
    """Follows one response in the eyes of `whose`. A front that is ending lets its followers go: they come back and
    name the last event that they have."""

    services: Services
    whose: store.Whose
    response: ResponseId
    look_s: float = LOOK_S
    quiet_s: float = QUIET_S

    async def events(self, after: int = -1) -> AsyncIterator[bytes]:
        """The events whose numbers are above `after`, until the response is over; comments in between. No more than
        one look's are held, however slow their reader is."""
        kept = ResponseEvents(self.services.settings.home)
        tail, spoke_s = Tail(self.services.database, kept, self.whose, self.response, after), monotonic()
        while not self.services.fleet.draining:
            try:
                said = await asyncio.to_thread(tail.look)
            except CoderAIError as error:
                yield _error(max(after + 1, tail.number), error)
                return
            except OSError as error:
                log.warning("what is told of the response %s cannot be read: %s", self.response, error)
                yield _error(max(after + 1, tail.number), CoderAIError(_UNREADABLE))
                return
            if said or monotonic() - spoke_s >= self.quiet_s:
                spoke_s = monotonic()
                yield said or _ALIVE
            if tail.over:
                return
            if not tail.more:
                await asyncio.sleep(self.look_s)


def followed(follower: Follower, run: RunId | None, after: int = -1) -> StreamingResponse:
    """The events as an answer."""
    headers = {"Cache-Control": "no-cache"} | ({} if run is None else {"X-Coderai-Run": run})
    return StreamingResponse(follower.events(after), 200, headers, "text/event-stream")


def _error(number: int, error: CoderAIError) -> bytes:
    """It cannot be followed any further: it was deleted, say."""
    return encoded(
        {"type": "error", "sequence_number": number, "code": error.code, "message": error.message, "param": error.param}
    )
