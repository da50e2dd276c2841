"""A response's stream at the client's end: an error in its midst is an event that says how the response ended."""

import orjson

from api.asgi import EventStream
from infra.error_object import error_object
from infra.types import Json
from tasks.responses.answer import error_code, failed
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
        response = failed(self._began, error_code(error), str(error_object(error)["message"]))
        event: dict[str, Json] = {
            "type": "response.failed",
            "sequence_number": self._events,
            "response": response,
        }
        await self.conclude(encoded(event))
