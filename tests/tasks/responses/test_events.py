"""A chat's chunks as a response's events."""

import json
from typing import Any

import pytest

from infra.errors import EngineFailed
from tasks.responses.answer import begun
from tasks.responses.events import Events, encoded

Body = dict[str, Any]


def chunk(delta: Body, finish_reason: str | None = None) -> Body:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def call(index: int, name: str | None = None, arguments: str = "") -> Body:
    function: Body = {"arguments": arguments} | ({"name": name} if name else {})
    return chunk({"tool_calls": [{"index": index, "function": function} | ({"id": f"call_{index}"} if name else {})]})


def played(*chunks: Body) -> tuple[list[Any], Body]:
    """All events of a stream, and the response that they end with."""
    events = Events(begun({"model": "m"}))
    text = events.begin() + b"".join(map(events.chunk, chunks)) + events.finish()
    response, last = events.end()
    lines = (text + last).decode().split("\n\n")[:-1]
    read = [json.loads(line.partition("\ndata: ")[2]) for line in lines]
    assert [line.split("\n")[0] for line in lines] == [f"event: {event['type']}" for event in read]
    assert [event["sequence_number"] for event in read] == list(range(len(read)))
    return read, response


def kinds(events: list[Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_an_event_on_the_wire() -> None:
    assert encoded({"type": "error", "n": 1}) == b'event: error\ndata: {"type":"error","n":1}\n\n'


def test_a_text() -> None:
    events, response = played(chunk({"role": "assistant", "content": None}), chunk({"content": "a"}), chunk({}, "stop"))
    assert kinds(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert events[2]["item"]["content"] == []
    assert events[-1]["response"] == response
    assert response["output"] == [events[-2]["item"]]


def test_an_empty_answer_still_has_a_message() -> None:
    _events, response = played(chunk({}, "stop"))
    assert response["output"][0]["content"][0]["text"] == ""


def test_items_follow_each_other() -> None:
    events, response = played(
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "Let me "}),
        chunk({"content": "see."}),
        call(0, "f"),
        call(0, arguments="{}"),
        call(1, "g", "[]"),
        chunk({}, "tool_calls"),
    )
    output: Any = response["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
    assert output[0]["content"][0]["text"] == "hm"
    assert output[1]["content"][0]["text"] == "Let me see."
    assert [(item["name"], item["arguments"], item["call_id"]) for item in output[2:]] == [
        ("f", "{}", "call_0"),
        ("g", "[]", "call_1"),
    ]
    opened = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    closed = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
    assert opened == closed == [0, 1, 2, 3]
    assert {item["status"] for item in output} == {"completed"}


def test_a_message_may_turn_into_a_refusal() -> None:
    events, response = played(chunk({"content": "Well, "}), chunk({"refusal": "no."}), chunk({}, "stop"))
    output: Any = response["output"]
    assert [part["type"] for part in output[0]["content"]] == ["output_text", "refusal"]
    places = [event["content_index"] for event in events if event["type"] == "response.content_part.added"]
    assert places == [0, 1]
    assert "refusal.delta" in kinds(events)


def test_a_call_that_is_taken_up_again_is_an_error() -> None:
    with pytest.raises(EngineFailed, match="went back"):
        played(call(0, "f"), call(1, "g"), call(0, arguments="{}"))


def test_only_the_item_that_was_cut_off_is_incomplete() -> None:
    events, response = played(chunk({"content": "a"}), call(0, "f", "{"), chunk({}, "length"))
    output: Any = response["output"]
    assert [item["status"] for item in output] == ["completed", "incomplete"]
    assert kinds(events)[-1] == "incomplete"


def test_usage_and_logprobs() -> None:
    token: Body = {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}
    piece: Body = {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [token]}, "finish_reason": None}
    events, response = played({"choices": [piece]}, {"choices": [], "usage": {"prompt_tokens": 3}})
    delta = next(event for event in events if event["type"] == "response.output_text.delta")
    assert delta["logprobs"] == [token]
    assert response["output"][0]["content"][0]["logprobs"] == [token]
    assert response["usage"]["input_tokens"] == 3
