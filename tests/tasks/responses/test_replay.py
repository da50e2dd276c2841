"""A stored response as the events of a stream."""

from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tasks.responses.answer import begun, call_item, message_item, reasoning_item, refusal_part, text_part
from tasks.responses.replay import ending, item_events, opening

Body = dict[str, Any]
_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
_SKELETON: Body = {
    "background": True,
    "instructions": None,
    "metadata": {},
    "model": "m",
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
}
_CALL: Body = {"id": "call_1", "function": {"name": "look"}}


def response(status: str, *output: Body, **more: Any) -> Body:
    return {**begun(_SKELETON), "status": status, "output": list(output), **more}


def played(stored: Body) -> list[Body]:
    """The events; each is one that OpenAI's client knows."""
    told = opening(stored)
    if stored["status"] not in ("queued", "in_progress"):
        for index, item in enumerate(stored["output"]):
            told += item_events(index, item)
        told.append(ending(stored))
    events: list[Body] = [{"type": kind, "sequence_number": n, **fields} for n, (kind, fields) in enumerate(told)]
    for event in events:
        _EVENT.validate_python(event, strict=False)
    return events


def kinds(events: list[Body]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


@pytest.mark.parametrize(
    ("status", "expected"),
    [("queued", ["created", "queued"]), ("in_progress", ["created", "queued", "in_progress"])],
)
def test_what_is_not_over_has_no_end(status: str, expected: list[str]) -> None:
    events = played(response(status))
    assert kinds(events) == expected
    assert events[-1]["response"]["status"] == status


@pytest.mark.parametrize(
    ("status", "last"),
    [("completed", "completed"), ("incomplete", "incomplete"), ("failed", "failed"), ("cancelled", "failed")],
)
def test_the_last_event_has_the_response_as_it_is(status: str, last: str) -> None:
    stored = response(status, usage={"input_tokens": 1} if status == "failed" else None, completed_at=7)
    del stored["usage"]
    events = played(stored)
    assert kinds(events) == ["created", "queued", "in_progress", last]
    assert events[-1]["response"] == stored
    assert events[0]["response"] == stored | {"status": "queued", "completed_at": None}


def test_every_kind_of_item() -> None:
    thought = reasoning_item("rs_1", "well", "completed")  # type: ignore[arg-type]
    said = message_item("msg_1", [text_part("Hello.", []), refusal_part("No.")], "completed")  # type: ignore[arg-type]
    called = call_item("fc_1", _CALL, '{"a":1}', "completed")  # type: ignore[arg-type]
    stored = response("completed", thought, said, called)
    events = played(stored)
    assert kinds(events)[3:-1] == [
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"),
        *("content_part.added", "refusal.delta", "refusal.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
    ]
    ended = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert ended == stored["output"]
    begun_items = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert [item["status"] for item in begun_items] == ["in_progress"] * 3
    assert begun_items[2]["arguments"] == ""
    deltas = {event["type"]: event["delta"] for event in events if "delta" in event}
    assert set(deltas.values()) == {"well", "Hello.", "No.", '{"a":1}'}
    assert {event["item_id"] for event in events if "item_id" in event} == {"rs_1", "msg_1", "fc_1"}
    assert Response.model_validate(events[-1]["response"]).output_text == "Hello."


def test_an_empty_text_has_no_delta() -> None:
    events = played(response("completed", message_item("msg_1", [text_part("")], "completed")))  # type: ignore[arg-type]
    assert "output_text.delta" not in kinds(events)
    assert "output_text.done" in kinds(events)
