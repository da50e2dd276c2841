"""A response that stands in the store as the events of a stream: those that it has had so far.

The same response gives the same events with the same numbers, so that whoever has some of them can ask for the rest.
"""

from collections.abc import Iterator
from typing import Final

from tasks.corrections.types import Body, objects
from tasks.responses.events import NAMES, TERMINAL, WHOLE, Kind, encoded

_PARTS: Final[dict[str, Kind]] = {"output_text": "text", "refusal": "refusal", "reasoning_text": "reasoning"}
"""The kinds of an item's parts, by their types."""

Event = tuple[str, Body]
"""Its type, and its fields but the number."""


def replay(response: Body) -> Iterator[bytes]:
    """Its events on the wire, numbered from 0; of one that has no end yet the last one is not there."""
    for number, (kind, fields) in enumerate(_events(response)):
        yield encoded({"type": kind, "sequence_number": number, **fields})


def _events(response: Body) -> Iterator[Event]:
    status = str(response["status"])
    yield "response.created", {"response": _before(response, "queued")}
    yield "response.queued", {"response": _before(response, "queued")}
    if status == "queued":
        return
    yield "response.in_progress", {"response": _before(response, "in_progress")}
    if status == "in_progress":
        return
    for index, item in enumerate(objects(response.get("output"))):
        yield from _item(index, item)
    yield TERMINAL.get(status, "response.failed"), {"response": response}


def _before(response: Body, status: str) -> Body:
    """The response as it stood before it had an end."""
    known = {name: value for name, value in response.items() if name != "usage"}
    return known | {"status": status, "completed_at": None, "error": None, "incomplete_details": None, "output": []}


def _item(index: int, item: Body) -> Iterator[Event]:
    place: Body = {"item_id": item["id"], "output_index": index}
    empty: Body = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
    yield "response.output_item.added", {"output_index": index, "item": {**item, **empty, "status": "in_progress"}}
    if item["type"] == "function_call":
        arguments = item["arguments"]
        if arguments:
            yield f"{NAMES['call']}.delta", {**place, "delta": arguments}
        yield f"{NAMES['call']}.done", {**place, "name": item["name"], "arguments": arguments}
    for number, part in enumerate(objects(item.get("content"))):
        yield from _part({**place, "content_index": number}, part)
    yield "response.output_item.done", {"output_index": index, "item": item}


def _part(place: Body, part: Body) -> Iterator[Event]:
    kind = _PARTS[str(part["type"])]
    field, whole = WHOLE[kind], part[WHOLE[kind]]
    nothing: Body = {"logprobs": []} if kind == "text" else {}
    more: Body = {"logprobs": part.get("logprobs") or []} if kind == "text" else {}
    yield "response.content_part.added", {**place, "part": {**part, field: "", **nothing}}
    if whole:
        yield f"{NAMES[kind]}.delta", {**place, "delta": whole, **more}
    yield f"{NAMES[kind]}.done", {**place, field: whole, **more}
    yield "response.content_part.done", {**place, "part": part}
