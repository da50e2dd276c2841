"""A far service knows its model by another name than ours; its answers carry ours."""

from collections.abc import Callable

import orjson

from infra.errors import EngineFailed

_END = b"\n"
_MAX_LINE_BYTES = 16 * 2**20


def renamer(served: str, ours: str) -> Callable[[bytes], bytes]:
    """Replaces the `model` of a whole answer, or of whole lines; a text never matches, its quotes are escaped."""
    new = b'"model":' + orjson.dumps(ours)
    old = orjson.dumps(served)
    tight, spaced = b'"model":' + old, b'"model": ' + old
    return lambda text: text.replace(tight, new).replace(spaced, new)


class RenamedEvents:
    """Renames in a stream, in whatever pieces it comes: line by line, whichever way its events are separated."""

    def __init__(self, rename: Callable[[bytes], bytes]) -> None:
        self._rename = rename
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """The lines that are whole now.

        Raises:
            EngineFailed: a line has no end.
        """
        whole, end, self._rest = (self._rest + piece).rpartition(_END)
        if len(self._rest) > _MAX_LINE_BYTES:
            raise EngineFailed("the engine sent a line of more than 16 MiB")
        return self._rename(whole) + end

    def finish(self) -> bytes:
        """What came after the last whole line."""
        rest, self._rest = self._rest, b""
        return self._rename(rest)
