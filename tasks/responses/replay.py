"""A response that stands in the store as the events of a stream.

The same response gives the same events, so that whoever has some of them can ask for the rest. What was told while it
was being made stands elsewhere (`told.py`): these are the events before that, and those of items that were not told.
"""

from collections.abc import Iterator
from typing import Final

from tasks.corrections.types import Body, objects
from tasks.responses.events import NAMES, TERMINAL, WHOLE, Kind

PARTS: Final[dict[str, Kind]] = {"output_text": "text", "refusal": "refusal", "reasoning_text": "reasoning"}
"""The kinds of an item's parts, by their types."""
IN_PROGRESS: Final = "response.in_progress"
DELTAS: Final[dict[str, Kind]] = {f"{name}.delta": kind for kind, name in NAMES.items()}
"""The kinds of the events that are pieces of a text, by their types."""

Event = tuple[str, Body]
"""Its type, and its fields but the number."""


def opening(response: Body) -> list[Event]:
    """What stands before its items; of one that nobody has begun yet the last of these three is not there."""
    queued = before(response, "queued")
    events: list[Event] = [("response.created", {"response": queued}), ("response.queued", {"response": queued})]
    if response["status"] != "queued":
        events.append((IN_PROGRESS, {"response": before(response, "in_progress")}))
    return events


def ending(response: Body) -> Event:
    """What stands after everything."""
    return TERMINAL.get(str(response["status"]), "response.failed"), {"response": response}


def before(response: Body, status: str) -> Body:
    """The response as it stood before it had an end."""
    known = {name: value for name, value in response.items() if name != "usage"}
    return known | {"status": status, "completed_at": None, "error": None, "incomplete_details": None, "output": []}


def item_events(index: int, item: Body) -> Iterator[Event]:
    """An item of its output, each text of it in one piece."""
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
    kind = PARTS[str(part["type"])]
    field, whole = WHOLE[kind], part[WHOLE[kind]]
    nothing: Body = {"logprobs": []} if kind == "text" else {}
    more: Body = {"logprobs": part.get("logprobs") or []} if kind == "text" else {}
    yield "response.content_part.added", {**place, "part": {**part, field: "", **nothing}}
    if whole:
        yield f"{NAMES[kind]}.delta", {**place, "delta": whole, **more}
    yield f"{NAMES[kind]}.done", {**place, field: whole, **more}
    yield "response.content_part.done", {**place, "part": part}
