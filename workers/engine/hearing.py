"""A transcript as it is heard: the events that OpenAI names for it, and the text in pieces. Pure."""

from typing import Final

import orjson

from infra.types import Json

DELTA: Final = "transcript.text.delta"
DONE: Final = "transcript.text.done"
EVENTS_TYPE: Final = "text/event-stream"


class Pieces:
    """A text in pieces which, joined, are the text without spaces around it."""

    def __init__(self) -> None:
        self.text = ""
        self._held = ""

    def add(self, said: str) -> str:
        """What can be told of the text now that this follows: a space only once something comes after it."""
        fresh = self._held + said
        if not self.text:
            fresh = fresh.lstrip()
        piece = fresh.rstrip()
        self._held = fresh[len(piece) :]
        self.text += piece
        return piece


def delta_event(text: str) -> bytes:
    """What was heard since the event before."""
    return _event({"type": DELTA, "delta": text})


def done_event(text: str, more: dict[str, Json]) -> bytes:
    """The whole text, and with it what else is known: `usage`, `duration`."""
    return _event({"type": DONE, "text": text, **more})


def _event(event: dict[str, Json]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(event)
