"""A request for a response as a chat."""

from typing import Any

import pytest

from api.openai.responses.mapping import chat_of, items_of, opening, skeleton_of
from api.openai.schemas import chat
from infra.errors import InvalidRequest
from tests.fakes import make_entry

BODY: dict[str, Any] = {"model": "m", "input": "hi"}
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
CALL: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}


def chatted(**more: Any) -> dict[str, Any]:
    made: dict[str, Any] = chat_of(BODY | more)
    chat.check(made)  # what is asked of the engine is what a chat's client may ask
    return made


def test_a_plain_text() -> None:
    assert chatted() == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_instructions_come_first() -> None:
    said = chatted(
        instructions="Be brief.", input=[{"role": "developer", "content": "rule"}, {"role": "user", "content": "hi"}]
    )
    assert [(message["role"], message["content"]) for message in said["messages"]] == [
        ("system", "Be brief."),
        ("system", "rule"),
        ("user", "hi"),
    ]  # fmt: skip


def test_calls_that_follow_each_other_are_one_message() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        CALL,
        CALL | {"call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ]
    messages = chatted(input=items)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[0]["content"] == "ab"
    assert (messages[1]["content"], [call["id"] for call in messages[1]["tool_calls"]]) == ("Let me see.", ["c1", "c2"])
    assert messages[3] == {"role": "tool", "tool_call_id": "c2", "content": "two"}
    assert messages[4]["content"] == "no"


def test_an_output_needs_its_call() -> None:
    with pytest.raises(InvalidRequest, match="No tool call found") as refused:
        chatted(input=[{"type": "function_call_output", "call_id": "c1", "output": "one"}, CALL])
    assert refused.value.param == "input"


def test_tools_and_the_choice_of_one() -> None:
    said = chatted(tools=[TOOL], tool_choice={"type": "function", "name": "f"}, parallel_tool_calls=False)
    assert said["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}
    ]
    assert said["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert said["parallel_tool_calls"] is False
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}
    assert chatted(tools=[TOOL], tool_choice=allowed)["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
    }
    assert chatted(tools=[TOOL], tool_choice="none")["tool_choice"] == "none"
    assert "tool_choice" not in chatted(tool_choice="none")


def test_the_form_of_the_text() -> None:
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True, "description": None}
    assert chatted(text={"format": schema})["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    }
    assert chatted(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    assert "response_format" not in chatted(text={"format": {"type": "text"}, "verbosity": "low"})


def test_sampling_and_limits() -> None:
    said = chatted(temperature=0, top_p=0.5, seed=7, max_output_tokens=9, stop=["x"], reasoning={"effort": "none"})
    assert (said["temperature"], said["top_p"], said["seed"], said["stop"]) == (0, 0.5, 7, ["x"])
    assert (said["max_completion_tokens"], said["reasoning_effort"]) == (9, "none")


def test_a_stream_counts_its_tokens() -> None:
    said = chatted(stream=True)
    assert (said["stream"], said["stream_options"]) == (True, {"include_usage": True})


def test_logprobs_only_where_they_are_included() -> None:
    assert "logprobs" not in chatted(top_logprobs=3)
    said = chatted(include=["message.output_text.logprobs"], top_logprobs=3)
    assert (said["logprobs"], said["top_logprobs"]) == (True, 3)


def test_a_picture_for_those_who_see() -> None:
    picture = {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"}
    said = chatted(input=[{"role": "user", "content": [{"type": "input_text", "text": "what?"}, picture]}])
    assert said["messages"][0]["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
    ]


def test_what_a_response_repeats() -> None:
    plain = skeleton_of(BODY, make_entry("m", sampling={"temperature": 0.7}))
    assert (plain["store"], plain["tool_choice"], plain["tools"], plain["truncation"]) == (True, "auto", [], "disabled")
    assert (plain["temperature"], plain["top_p"], plain["metadata"]) == (0.7, None, {})
    assert plain["text"] == {"format": {"type": "text"}}
    full = skeleton_of(BODY | {"store": False, "tools": [TOOL], "temperature": 0, "user": "u"}, make_entry())
    assert (full["store"], full["temperature"], full["user"]) == (False, 0, "u")
    assert full["tools"] == [TOOL | {"description": None}]


def test_the_opening_is_the_same_in_every_turn() -> None:
    first = BODY | {"instructions": "rule"}
    later = [*items_of("hi"), {"role": "assistant", "content": "hello"}, {"role": "user", "content": "more"}]
    assert opening(first) == opening(first | {"input": later}) == "rule\nhi"
    assert opening({"model": "m", "input": None}) == "\n"
