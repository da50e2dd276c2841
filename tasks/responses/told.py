"""What a response in the background tells while it is made, as lines that are kept for those who follow it.

The lines are the events of the items, in their order: what stands before them is made of the response alone, so the
first line is the event `FIRST`. Pieces of text, of which there may be thousands, stand as the bare piece, or as a list
of it and its logprobs; every other event as an object without its number.

A response may be made anew, since the engine or the process that made it has died. What was told is not unsaid: its
open item is closed as incomplete, another `response.in_progress` says that all before it counts no more, and the items
of the new try have indexes and numbers of their own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import orjson

from infra.types import Json
from tasks.corrections.types import Body, inner, number, objects
from tasks.responses.replay import DELTAS, IN_PROGRESS, PARTS, Event, item_events

FIRST: Final = 3
"""The number of the first event that is kept."""
_CREATED: Final = "response.created"
_ADDED: Final = "response.output_item.added"
_DONE: Final = "response.output_item.done"
_PART_ADDED: Final = "response.content_part.added"
_PART_DONE: Final = "response.content_part.done"
_TYPES: Final = {kind: name for name, kind in DELTAS.items()}
_END: Final = b"\n\n"
_DATA: Final = b"\ndata: "


@dataclass(slots=True)
class _Open:
    """The item that is being told: its parts so far, and the pieces of the text that is open."""

    item: Body
    parts: list[Body] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)
    delta: str = ""
    """The type of the events that are pieces of this text."""
    place: Body = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def cut_off(self) -> Body:
        """The item as far as it has come."""
        cut: Body = {**self.item, "status": "incomplete"}
        if self.item["type"] == "function_call":
            return cut | {"arguments": self.text}
        if self.delta and self.parts:
            name = "refusal" if DELTAS[self.delta] == "refusal" else "text"
            self.parts[-1] |= {name: self.text} | ({"logprobs": self.logprobs} if "logprobs" in self.parts[-1] else {})
        return cut | {"content": list[Json](self.parts)}


class Told:
    """What the lines so far say; those who write them and those who read them keep it alike."""

    def __init__(self) -> None:
        self.count = 0
        """How many events there were."""
        self._items: list[Json] = []
        self._earlier = 0
        self._steps = 0
        self._open: _Open | None = None

    @property
    def speaking(self) -> bool:
        """Whether more of an item is to come."""
        return self._open is not None

    def lines(self, stream: bytes) -> bytes:
        """The lines for events as they go to a client who waits: whole ones, of one try after the other."""
        events: list[Event] = []
        for text in stream.split(_END)[:-1]:
            fields: Body = orjson.loads(text.partition(_DATA)[2])
            kind = str(fields.pop("type"))
            del fields["sequence_number"]
            if kind == _CREATED:
                events += self._anew()
            elif kind != IN_PROGRESS:
                if "output_index" in fields:
                    fields["output_index"] = number(fields["output_index"]) + self._earlier
                self._note(kind, fields)
                events.append((kind, fields))
        return b"".join(map(_line, events))

    def read(self, line: bytes) -> Event:
        """The event of the next line. A further `response.in_progress` comes without its response.

        Raises:
            ValueError: the line is none, or does not follow on those before.
        """
        said: Json = orjson.loads(line)
        try:
            kind, fields = _event(said, self._open)
            self._note(kind, fields)
        except KeyError as error:
            raise ValueError("no event of a response") from error
        return kind, fields

    def rest(self, response: Body) -> Iterator[Event]:
        """What was not told of the response, which is over: all of it, if nothing was told of these items."""
        output = objects(response.get("output"))
        if output and [item["id"] for item in output][: len(self._items)] != self._items:
            yield from self._anew()
        known, first = self._steps, self._earlier
        for index, item in enumerate(output):
            for kind, fields in item_events(index + first, item):
                if known > 0:
                    known -= kind not in DELTAS
                    continue
                unsaid = _unsaid(fields, self._open) if kind in DELTAS else fields
                if unsaid:
                    self._note(kind, unsaid)
                    yield kind, unsaid

    def _anew(self) -> list[Event]:
        """What is told before another try, if this one has told anything."""
        if not self._items:
            return []
        events: list[Event] = []
        if self._open is not None:
            index = self._earlier + len(self._items) - 1
            events.append((_DONE, {"output_index": index, "item": self._open.cut_off()}))
        events.append((IN_PROGRESS, {}))
        for kind, fields in events:
            self._note(kind, fields)
        return events

    def _note(self, kind: str, fields: Body) -> None:
        if kind == IN_PROGRESS:
            self._earlier += len(self._items)
            self._items, self._steps, self._open = [], 0, None
        elif kind in DELTAS:
            if self._open is not None:
                self._open.pieces.append(str(fields["delta"]))
                self._open.logprobs += objects(fields.get("logprobs"))
        else:
            self._note_step(kind, fields)
            self._steps += 1
        self.count += 1

    def _note_step(self, kind: str, fields: Body) -> None:
        """Note an event that is no piece of a text."""
        if kind == _ADDED:
            item = inner(fields, "item")
            self._open = _Open(item)
            if item["type"] == "function_call":
                self._open.delta = _TYPES["call"]
                self._open.place = {"item_id": item["id"], "output_index": fields["output_index"]}
            self._items.append(item["id"])
        elif kind == _DONE:
            self._open = None
        elif self._open is not None:
            _note_part(self._open, kind, fields)


def _note_part(now: _Open, kind: str, fields: Body) -> None:
    if kind == _PART_ADDED:
        part = inner(fields, "part")
        now.parts.append(dict(part))
        now.delta = _TYPES[PARTS[str(part.get("type"))]]
        now.place = {name: fields[name] for name in ("item_id", "output_index", "content_index")}
        now.pieces, now.logprobs = [], []
    elif kind == _PART_DONE:
        now.parts[-1:] = [inner(fields, "part")]
        now.delta, now.pieces, now.logprobs = "", [], []


def _event(said: Json, now: _Open | None) -> Event:
    """A line's event; a piece of text belongs to the text that is open."""
    if isinstance(said, dict):
        return str(said["type"]), {name: value for name, value in said.items() if name != "type"}
    piece, logprobs = said if isinstance(said, list) and len(said) == 2 else (said, [])
    if not isinstance(piece, str) or now is None or not now.delta:
        raise ValueError("a piece of a text that was not begun")
    more: Body = {"logprobs": logprobs} if DELTAS[now.delta] == "text" else {}
    return now.delta, {**now.place, "delta": piece, **more}


def _line(event: Event) -> bytes:
    kind, fields = event
    said: Json = {"type": kind, **fields}
    if kind in DELTAS:
        said = [fields["delta"], fields["logprobs"]] if fields.get("logprobs") else fields["delta"]
    return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)


def _unsaid(delta: Body, now: _Open | None) -> Body:
    """What of a whole text was not said yet; nothing if all was."""
    if now is None:
        return delta
    text = str(delta["delta"])[len(now.text) :]
    more: Body = (
        {"logprobs": list[Json](objects(delta["logprobs"])[len(now.logprobs) :])} if "logprobs" in delta else {}
    )
    return {**delta, "delta": text, **more} if text else {}
