"""A response's stream at the client's end: an error in its midst is an event that says how the response ended."""

import orjson

from api.asgi import EventStream
from api.errors import error_object
from infra.errors import RateLimited, UpstreamRefused, UserError
from infra.types import Json
from tasks.responses.answer import failed
from tasks.responses.events import encoded

_END = b"\n\n"
_DATA = b"data: "


class ResponseStream(EventStream):
    """Remembers what the error event needs: the response as it began, and how many events there were."""

    __slots__ = ("_began", "_events")

    async def write(self, data: bytes) -> None:
        """See `EventStream.write`; `data` is whole events."""
        if not self.started:
            self._events = 0
            self._began: dict[str, Json] = orjson.loads(data.partition(_DATA)[2].partition(_END)[0])["response"]
        self._events += data.count(_END)
        await super().write(data)

    async def tell(self, error: Exception) -> None:
        """Say that the response has failed."""
        response = failed(self._began, _code(error), str(error_object(error)["message"]))
        event: dict[str, Json] = {
            "type": "response.failed",
            "sequence_number": self._events,
            "response": response,
        }
        await self.conclude(encoded(event))


def _code(error: Exception) -> str:
    """One of the codes that a response's error may have."""
    if isinstance(error, RateLimited):
        return "rate_limit_exceeded"
    return "invalid_prompt" if isinstance(error, UserError | UpstreamRefused) else "server_error"
