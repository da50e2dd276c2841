"""What a response tells while it is made: written as lines, read as the same events, and finished from its end."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tasks.responses.answer import begun
from tasks.responses.events import Events
from tasks.responses.told import Told
from tests.tasks.responses.test_events import Body, call, chunk

_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
TOKEN: Body = {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}
CHUNKS: list[Body] = [
    chunk({"reasoning_content": "hm"}),
    chunk({"reasoning_content": ", well"}),
    chunk({"content": "Let "}),
    {"choices": [{"index": 0, "delta": {"content": "me "}, "logprobs": {"content": [TOKEN]}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {"content": "see."}, "logprobs": {"content": [TOKEN]}, "finish_reason": None}]},
    chunk({"refusal": "No\n"}),
    chunk({"refusal": "way."}),
    call(0, "f"),
    call(0, arguments='{"a":'),
    call(0, arguments="1}"),
    call(1, "g", "[]"),
    chunk({}, "tool_calls"),
]


class Try:
    """A response's stream, piece by piece as a client who waits would get it, and what comes of it."""

    def __init__(self, *chunks: Body) -> None:
        events = Events(begun({"model": "m"}))
        first = events.begin()
        self.pieces = [first + events.chunk(chunks[0]), *map(events.chunk, chunks[1:]), events.finish()]
        self.response, _last = events.end()

    def sent(self) -> list[Any]:
        """The events of its items without their numbers."""
        texts = b"".join(self.pieces).decode().split("\n\n")[:-1]
        read = [json.loads(text.partition("\ndata: ")[2]) for text in texts]
        return [event | {"sequence_number": None} for event in read[2:]]


def told(pieces: Iterable[bytes], writer: Told | None = None) -> list[bytes]:
    """The lines for these pieces."""
    teller = writer or Told()
    return b"".join(map(teller.lines, pieces)).splitlines(keepends=True)


def read(lines: Iterable[bytes], reader: Told | None = None) -> list[Any]:
    """The events of these lines without their numbers."""
    hearer = reader or Told()
    return [{"type": kind, "sequence_number": None, **fields} for kind, fields in map(hearer.read, lines)]


def heard(lines: list[bytes], response: Body) -> list[Any]:
    """What a follower gets of these lines, and of the response once it is over."""
    reader = Told()
    events = read(lines, reader)
    return events + [{"type": kind, "sequence_number": None, **fields} for kind, fields in reader.rest(response)]


def texts(events: list[Any]) -> dict[str, str]:
    """All pieces of text by their items."""
    found: dict[str, str] = {}
    for event in events:
        if "delta" in event:
            found[event["item_id"]] = found.get(event["item_id"], "") + event["delta"]
    return found


def test_what_is_read_is_what_a_client_who_waits_is_sent() -> None:
    made = Try(*CHUNKS)
    lines = told(made.pieces)
    assert heard(lines, made.response) == made.sent()


def test_a_piece_of_text_is_little_more_than_itself() -> None:
    lines = told(Try(chunk({"content": "a"}), chunk({"content": "b\n"})).pieces)
    assert lines[2:4] == [b'"a"\n', b'"b\\n"\n']


def test_the_count_is_kept_alike() -> None:
    made, writer, reader = Try(*CHUNKS), Told(), Told()
    for piece in made.pieces:
        read(told([piece], writer), reader)
        assert (reader.count, reader.speaking) == (writer.count, writer.speaking)
    assert reader.count == len(made.sent())
    assert not reader.speaking


@pytest.mark.parametrize("known", range(36))
def test_what_was_not_told_is_told_at_the_end(known: int) -> None:
    """Wherever the lines break off: there was no room for more of them."""
    made = Try(*CHUNKS)
    lines = told(made.pieces)
    assert len(lines) <= 36
    events = heard(lines[:known], made.response)
    steps = [event for event in events if "delta" not in event]
    assert steps == [event for event in made.sent() if "delta" not in event]
    assert texts(events) == texts(made.sent())
    logprobs = [each for event in events if "delta" in event for each in event.get("logprobs", [])]
    assert logprobs == [TOKEN, TOKEN]
    for event in events:
        _EVENT.validate_python(event | {"sequence_number": 1}, strict=False)


def test_a_failure_has_nothing_more_to_tell() -> None:
    made = Try(*CHUNKS)
    lines = told(made.pieces)[:5]
    assert heard(lines, made.response | {"status": "failed", "output": []}) == read(lines)


@pytest.mark.parametrize("broken_after", range(1, len(CHUNKS) + 1))
def test_another_try_closes_what_was_open_and_goes_on_after_it(broken_after: int) -> None:
    first, second, writer = Try(*CHUNKS), Try(*CHUNKS), Told()
    lines = told(first.pieces[:broken_after], writer) + told(second.pieces, writer)
    events = heard(lines, second.response)
    (again,) = [place for place, event in enumerate(events) if event["type"] == "response.in_progress"]
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == list(range(len(added)))
    assert [event["output_index"] for event in done] == list(range(len(done)))
    closed = events[again - 1]
    if events[:again] != first.sent()[:again]:
        assert (closed["type"], closed["item"]["status"]) == ("response.output_item.done", "incomplete")
        assert events[: again - 1] == first.sent()[: again - 1]
        said = texts(events[:again]).get(closed["item"]["id"], "")
        assert item_text(closed["item"]) == said
    shift = sum(event["type"] == "response.output_item.added" for event in events[:again])
    shifted = [{**event, "output_index": event["output_index"] + shift} for event in second.sent()]
    assert events[again + 1 :] == shifted


def item_text(item: Body) -> str:
    """All that an item says."""
    parts = item.get("content", [])
    return str(item.get("arguments", "")) + "".join(part.get("text", part.get("refusal", "")) for part in parts)


def test_a_try_of_which_nothing_could_be_told_is_told_at_the_end() -> None:
    first, second = Try(*CHUNKS), Try(chunk({"content": "Yes."}), chunk({}, "stop"))
    events = heard(told(first.pieces[:4]), second.response)
    kinds = [event["type"] for event in events]
    again = kinds.index("response.in_progress")
    assert kinds[again - 1 :] == [
        "response.output_item.done",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    assert [event["output_index"] for event in events[again + 1 :]] == [2] * 6


def test_a_try_that_told_nothing_leaves_no_trace() -> None:
    silent, made, writer = Try(chunk({})), Try(*CHUNKS), Told()
    lines = told(silent.pieces[:1], writer) + told(made.pieces, writer)
    assert heard(lines, made.response) == made.sent()


@pytest.mark.parametrize("line", [b"\0\0\n", b"12\n", b'"early"\n', b'["a"]\n', b"{}\n", b'{"type":"x"', b"[1,[]]\n"])
def test_a_line_that_is_none(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # of whatever kind
        Told().read(line)


def test_a_damaged_event_is_none_and_not_counted() -> None:
    reader = Told()
    with pytest.raises(ValueError, match="no event"):
        reader.read(b'{"type":"response.output_item.added","item":{}}\n')
    assert reader.count == 0
