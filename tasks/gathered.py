"""A chat's stream that is kept: it goes to its client as it comes, under an id of ours, and a whole answer grows of it.

Its end is held back, from the chunk on with which all of its choices have ended, so that a client who has been told the
end can rely on what is done before.
"""

from typing import Final

import orjson

from infra.types import ChatId, Json
from tasks.corrections.events import EventCutter
from tasks.corrections.gather import Gathered
from tasks.corrections.types import Body

MOST_BYTES: Final = 8 << 20
"""Of an answer that is kept, as JSON: it is held in memory until its end, where it may take eight times as much."""
KIND: Final = "chat.completion"
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_END: Final = b"\n\n"


class GatheredStream:
    """Takes a stream of `choices` answers in whatever pieces it comes; `completion` is the id that they get. Of
    choices with more than `MOST_BYTES` no answer grows."""

    def __init__(self, completion: ChatId, choices: int) -> None:
        self._id = completion
        self._choices = choices
        self._events = EventCutter()
        self._gathered = Gathered()
        self._held: list[bytes] = []
        self._done = False
        self._spoilt = False
        self._size_bytes = 0

    def feed(self, piece: bytes) -> bytes:
        """What can be passed on now.

        Raises:
            EngineFailed: an event is too long.
        """
        passed: list[bytes] = []
        for event in self._events.whole(piece):
            told = self._told(event.strip(b"\n"))
            over = bool(self._held) or self._done or len(self._gathered.finished) >= self._choices
            (self._held if over else passed).append(told)
        return b"".join(passed)

    def finish(self) -> bytes:
        """The stream has ended: what of it was held back."""
        rest = self._events.rest()
        self._spoilt = self._spoilt or bool(rest.strip())
        return b"".join([*self._held, rest])

    def answer(self, usage: Body) -> Body | None:
        """The whole answer, with `usage` where the stream itself tells none; None if it was not whole."""
        begun, finished = self._gathered.begun, len(self._gathered.finished)
        if self._spoilt or not begun or not (self._done or finished >= max(begun, self._choices)):
            return None
        return {**self._gathered.answer(KIND, self._gathered.usage or usage), "id": self._id}

    def _told(self, event: bytes) -> bytes:
        """An event as the client gets it."""
        lines = event.split(b"\n")
        data = b"\n".join(line[len(_DATA) :].strip() for line in lines if line.startswith(_DATA))
        if not data or data == _DONE:
            self._done = self._done or data == _DONE
            return event + _END if event else b""
        try:
            chunk: Json = orjson.loads(data)
            told = orjson.dumps({**chunk, "id": self._id}) if isinstance(chunk, dict) else data
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # it reads deeper than it writes
            chunk = {"error": "no chunk"}
        if not isinstance(chunk, dict):
            return event + _END
        if chunk.get("error") is not None:
            self._spoilt = True
            return event + _END
        self._size_bytes += len(orjson.dumps(chunk.get("choices")))
        if self._size_bytes > MOST_BYTES:
            self._spoilt, self._gathered = True, Gathered()
        self._gathered.add(chunk)
        return b"\n".join([*(line for line in lines if not line.startswith(_DATA)), b"data: " + told]) + _END
