"""Server-sent events, corrected on the way: bytes in whatever pieces they come, bytes out."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import orjson

from infra.errors import EngineFailed
from tasks.corrections.types import Body, ChunkMender
from tasks.types import Usage

_MAX_EVENT_BYTES: Final = 16 * 2**20
_END: Final = b"\n\n"
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_NO_CHOICES: Final = (b'"choices":[]', b'"choices": []')


class StreamMender(Protocol):
    """Takes a stream's bytes in arbitrary pieces."""

    def feed(self, piece: bytes) -> bytes:
        """What can be sent on now; may be empty."""
        ...

    def finish(self) -> bytes:
        """What is left when the stream has ended."""
        ...

    @property
    def usage(self) -> Usage | None:
        """The tokens, if they are counted here; None: look for them in the end of the engine's own stream."""
        ...


class Counting(Protocol):
    """Counts the tokens of a stream."""

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        ...


class EventCutter:
    """Cuts bytes into events."""

    def __init__(self) -> None:
        self._rest = b""

    def whole(self, piece: bytes) -> list[bytes]:
        """The events that are complete now, without their blank lines."""
        *events, self._rest = (self._rest + piece.replace(b"\r", b"")).split(_END)
        if len(self._rest) > _MAX_EVENT_BYTES:
            raise EngineFailed("the engine sent an event of more than 16 MiB")
        return events

    def rest(self) -> bytes:
        """What came after the last complete event."""
        rest, self._rest = self._rest, b""
        return rest


class MendedEvents:
    """A stream whose chunks are corrected by several menders, one after the other."""

    def __init__(self, menders: Sequence[ChunkMender], tally: Counting | None = None) -> None:
        self._menders = menders
        self._tally = tally
        self._events = EventCutter()

    @property
    def usage(self) -> Usage | None:
        """The tokens of all choices, if one of the menders has counted them."""
        return None if self._tally is None else self._tally.usage

    def feed(self, piece: bytes) -> bytes:
        """What can be sent on now.

        Raises:
            EngineFailed: an event is no JSON, or too long.
        """
        return b"".join(self._event(event) for event in self._events.whole(piece))

    def finish(self) -> bytes:
        """An event that was cut off, as it is: the client must see that the stream broke off."""
        return self._events.rest()

    def _event(self, event: bytes) -> bytes:
        event = event.strip(b"\n")
        if not event.startswith(_DATA):
            return event + _END if event else b""
        data = event[len(_DATA) :].strip()
        if data == _DONE:
            return b"".join([*map(_encoded, self._last()), event, _END])
        chunk = _chunk(data)
        if chunk is None:
            return b""
        if "error" in chunk:
            return event + _END
        return b"".join(map(_encoded, _through(self._menders, [chunk])))

    def _last(self) -> Iterator[Body]:
        """What the menders have kept to the end; what one says goes through those after it."""
        for place, mender in enumerate(self._menders):
            yield from _through(self._menders[place + 1 :], mender.end())


class HiddenUsage:
    """Takes out the usage chunk that we asked for and the client did not; parses nothing."""

    def __init__(self) -> None:
        self._events = EventCutter()

    @property
    def usage(self) -> None:
        """None: it is in the end of the engine's own stream."""
        return

    def feed(self, piece: bytes) -> bytes:
        """What can be sent on now."""
        events = self._events.whole(piece)
        return b"".join(event + _END for event in events if not any(empty in event for empty in _NO_CHOICES))

    def finish(self) -> bytes:
        """What came after the last complete event."""
        return self._events.rest()


def chunks_in(stream: bytes) -> Iterator[Body]:
    """The chunks of a complete stream.

    Raises:
        EngineFailed: an event is no JSON, or the engine reported an error in the midst.
    """
    for padded in EventCutter().whole(stream):
        event = padded.strip(b"\n")
        data = event[len(_DATA) :].strip() if event.startswith(_DATA) else _DONE
        chunk = None if data == _DONE else _chunk(data)
        if chunk is None:
            continue
        if "error" in chunk:
            error = chunk["error"]
            message = error.get("message") if isinstance(error, dict) else error
            raise EngineFailed(f"the engine broke off its answer: {message}")
        yield chunk


def _through(menders: Sequence[ChunkMender], chunks: Iterable[Body]) -> list[Body]:
    passing = list(chunks)
    for mender in menders:
        passing = [after for before in passing for after in mender.chunk(before)]
    return passing


def _chunk(data: bytes) -> Body | None:
    """One event's chunk; None for `null`, which llama.cpp sends first when it has several prompts."""
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise EngineFailed("the engine sent an event that is no JSON") from error
    return chunk if isinstance(chunk, dict) else None


def _encoded(chunk: Body) -> bytes:
    return b"data: " + orjson.dumps(chunk) + _END
