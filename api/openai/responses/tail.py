"""What is new of a response in the background for one who follows it: looked at again and again. Everything blocks."""

from typing import Final

from api.openai.responses import store
from infra.database import Database
from infra.errors import Conflict
from infra.response_events import Lines, ResponseEvents
from infra.response_rows import UNDER_WAY
from infra.types import Json, ResponseId
from tasks.responses.events import encoded
from tasks.responses.replay import IN_PROGRESS, Event, before, ending, opening
from tasks.responses.told import Told

_QUIET_LOOKS: Final = 3
"""Looks at what is told between two at the status."""


class Tail:
    """The events of one response, from the number after `after` on."""

    def __init__(
        self, database: Database, events: ResponseEvents, whose: store.Whose, response: ResponseId, after: int
    ) -> None:
        self._database = database
        self._events = events
        self._whose = whose
        self._response = response
        self._after = after
        self._status = ""
        self._shown: dict[str, Json] = {}
        self._told = Told()
        self._read_bytes = 0
        self._file: int | None = None
        self._looks = 0
        self.number = 0
        """Of the next event."""
        self.more = False
        """Whether there is more to be had at once."""
        self.over = False
        """Whether all is said."""

    def look(self) -> bytes:
        """The events that are new, as they go over the wire.

        Raises:
            NotFound: the response was deleted.
            Conflict: it had ended and was begun anew meanwhile; its events have other numbers now.
        """
        lines = self._lines()
        if self._is_due(lines):
            self._ask()
        ended = self._status not in UNDER_WAY
        if ended and not lines.closed:
            self._events.close(self._response)  # whoever might still tell more is too late
            lines = self._lines()
        said = self._opening()
        if self._status != "queued":
            said += self._items(lines)
        if ended and not self.more:
            said += self._rest()
        return b"".join(said)

    def _lines(self) -> Lines:
        lines = self._events.read(self._response, self._read_bytes)
        if lines.file is not None and self._file not in (None, lines.file):
            raise Conflict("this response had ended and was begun anew: follow it from its beginning")
        self._file = lines.file if lines.file is not None else self._file
        return lines

    def _is_due(self, lines: Lines) -> bool:
        """Whether to look at the row now: now and then, and where the file says that it has changed."""
        self._looks += 1
        begun = bool(lines.data) and self._status == "queued"
        return self._looks % _QUIET_LOOKS == 1 or lines.closed or begun

    def _ask(self) -> None:
        status = store.status_of(self._database, self._whose, self._response) or ""
        if status != self._status:
            stored = store.get(self._database, self._whose, self._response)
            self._status, self._shown = stored.status or "", stored.shown

    def _opening(self) -> list[bytes]:
        events = opening(self._shown)
        return [self._event(*event) for event in events[self.number :]] if self.number < len(events) else []

    def _items(self, lines: Lines) -> list[bytes]:
        said: list[bytes] = []
        self.more = lines.more
        for line in lines.data.splitlines(keepends=True):
            try:
                kind, fields = self._told.read(line)
            except ValueError:  # a power cut tore it: it is taken away before another one is written
                self.more = False
                break
            self._read_bytes += len(line)
            if kind == IN_PROGRESS:
                fields = {"response": before(self._shown, "in_progress")}
            said.append(self._event(kind, fields))
        return said

    def _rest(self) -> list[bytes]:
        self.over = True
        events: list[Event] = [*self._told.rest(self._shown), ending(self._shown)]
        return [
            self._event(kind, fields or {"response": before(self._shown, "in_progress")}) for kind, fields in events
        ]

    def _event(self, kind: str, fields: dict[str, Json]) -> bytes:
        number, self.number = self.number, self.number + 1
        return encoded({"type": kind, "sequence_number": number, **fields}) if number > self._after else b""
