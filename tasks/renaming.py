"""A far service knows its model by another name than ours; its answers carry ours."""

from collections.abc import Callable

import orjson

_END = b"\n\n"


def renamer(served: str, ours: str) -> Callable[[bytes], bytes]:
    """Replaces the `model` of a whole answer, or of whole events; a text never matches, its quotes are escaped."""
    new = b'"model":' + orjson.dumps(ours)
    old = orjson.dumps(served)
    tight, spaced = b'"model":' + old, b'"model": ' + old
    return lambda text: text.replace(tight, new).replace(spaced, new)


class RenamedEvents:
    """Renames in a stream, event by event, in whatever pieces it comes."""

    def __init__(self, rename: Callable[[bytes], bytes]) -> None:
        self._rename = rename
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """The events that are whole now."""
        whole, end, self._rest = (self._rest + piece).rpartition(_END)
        return self._rename(whole) + end

    def finish(self) -> bytes:
        """What came after the last whole event."""
        rest, self._rest = self._rest, b""
        return self._rename(rest)
