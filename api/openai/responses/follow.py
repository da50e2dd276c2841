"""The events of a response that is made in the background, for whoever follows it: what there is, then what comes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from starlette.responses import StreamingResponse

from api.openai.responses import store
from api.services import Services
from infra.clock import monotonic
from infra.database import Database
from infra.errors import CoderAIError
from infra.response_rows import UNDER_WAY
from infra.types import ResponseId, RunId
from tasks.responses.events import encoded
from tasks.responses.replay import replay

LOOK_S: Final = 0.5
"""Seconds between two looks at a response that is followed."""
QUIET_S: Final = 5.0
"""Seconds of silence after which a comment is sent: proxies see a connection that lives, and we a client that left."""
T = TypeVar("T")
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
        """The events whose numbers are above `after`, until the response is over; comments in between."""
        last, spoke_s, status = after, monotonic(), ""
        while not self.services.fleet.draining:
            try:
                changed = await self._asked(store.status_of) != status
                stored = await self._asked(store.get) if changed else None
            except CoderAIError as error:
                yield _error(last + 1, error)
                return
            if stored is not None:
                status = stored.status or ""
                for number, event in enumerate(replay(stored.shown)):
                    if number > last:
                        last, spoke_s = number, monotonic()
                        yield event
            if status not in UNDER_WAY:
                return
            if monotonic() - spoke_s >= self.quiet_s:
                spoke_s = monotonic()
                yield _ALIVE
            await asyncio.sleep(self.look_s)

    async def _asked(self, look: Callable[[Database, store.Whose, ResponseId], T]) -> T:
        return await asyncio.to_thread(look, self.services.database, self.whose, self.response)


def followed(follower: Follower, run: RunId | None, after: int = -1) -> StreamingResponse:
    """The events as an answer."""
    headers = {"Cache-Control": "no-cache"} | ({} if run is None else {"X-Coderai-Run": run})
    return StreamingResponse(follower.events(after), 200, headers, "text/event-stream")


def _error(number: int, error: CoderAIError) -> bytes:
    """It cannot be followed any further: it was deleted, say."""
    return encoded(
        {"type": "error", "sequence_number": number, "code": error.code, "message": error.message, "param": error.param}
    )
