"""What tool_choice promises."""

import json
from typing import Final

import pytest

from infra.types import Json
from tasks.corrections.table import corrections_for, mend
from tasks.corrections.tools import auto_response, offered_tools
from tasks.corrections.types import CHAT, Body, Traits, inner, objects
from tests.tasks.corrections.live import Live, first, message, texts, user

WEATHER: Final[Body] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"$ref": "#/$defs/City"}},
            "required": ["city"],
            "additionalProperties": False,
            "$defs": {"City": {"enum": ["Paris", "Oslo"]}},
        },
    },
}
CLOCK: Final[Body] = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {
            "type": "object",
            "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["hour"],
            "additionalProperties": False,
        },
    },
}
ASKED: Final[Body] = {
    "messages": user("What is the weather in Paris?"),
    "temperature": 0,
    "max_tokens": 200,
    "tools": [WEATHER, CLOCK],
}
NAMED: Final[Json] = {"type": "function", "function": {"name": "get_time"}}
ONLY_CLOCK: Final[Json] = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}


def function(answer: Body) -> Body:
    """The function of the one call in an answer."""
    assert first(answer)["finish_reason"] == "tool_calls"
    assert message(answer)["content"] is None
    (one,) = objects(message(answer)["tool_calls"])
    assert str(one["id"]).startswith("call_")
    return inner(one, "function")


@pytest.mark.parametrize("choice", ["required", NAMED, ONLY_CLOCK])
def test_a_demanded_call_is_made_even_by_a_random_model(tiny: Live, choice: Json) -> None:
    body: Body = {**ASKED, "tool_choice": choice, "seed": 1, "max_tokens": 1000}
    assert "tool_calls" not in message(tiny.bare(CHAT, body))
    called = function(tiny.mended(CHAT, body))
    assert called["name"] in (("get_weather", "get_time") if choice == "required" else ("get_time",))
    arguments = json.loads(str(called["arguments"]))
    if called["name"] == "get_time":
        assert 0 <= arguments["hour"] <= 9
    else:
        assert arguments["city"] in ("Paris", "Oslo")


def test_a_demanded_call_is_streamed_as_one(tiny: Live) -> None:
    parts = tiny.mended_stream(CHAT, {**ASKED, "tool_choice": "required", "seed": 1, "max_tokens": 1000})
    assert texts(parts) == ""
    deltas = [one for part in parts for one in objects(inner(first(part), "delta").get("tool_calls"))]
    assert len(deltas) == 1
    json.loads(str(inner(deltas[0], "function")["arguments"]))
    assert first(parts[-1])["finish_reason"] == "tool_calls"


def test_none_hides_the_tools() -> None:
    for template_has_tools in (True, False):
        mending = mend(CHAT, {**ASKED, "tool_choice": "none"}, Traits(template_has_tools=template_has_tools))
        assert mending is not None
        assert mending.body.keys() & {"tools", "tool_choice"} == set()
        assert not mending.touches_answer


def test_a_template_without_tools_has_them_told(tiny: Live) -> None:
    assert not tiny.traits.template_has_tools
    bare = inner(tiny.bare(CHAT, ASKED), "usage")["prompt_tokens"]
    told = inner(tiny.mended(CHAT, ASKED), "usage")["prompt_tokens"]
    assert isinstance(bare, int)
    assert isinstance(told, int)
    assert told > bare + 300
    mending = mend(CHAT, {**ASKED, "messages": [{"role": "system", "content": "Be kind."}]}, tiny.traits)
    assert mending is not None
    (system,) = objects(mending.body["messages"])
    assert str(system["content"]).startswith("Be kind.\n\n# Tools")
    assert "get_weather" in str(system["content"])
    assert "tools" not in mending.body


def test_a_template_with_tools_keeps_them() -> None:
    mending = mend(CHAT, {**ASKED, "tool_choice": ONLY_CLOCK, "parallel_tool_calls": True}, Traits())
    assert mending is not None
    assert mending.body["tools"] == [CLOCK]
    assert mending.body["parallel_tool_calls"] is True
    assert "tool_choice" not in mending.body
    assert inner(mending.body, "response_format")["type"] == "json_schema"


def test_only_one_of_the_corrections_applies() -> None:
    def names(choice: Json) -> list[str]:
        return [correction.name for correction in corrections_for(CHAT, {**ASKED, "tool_choice": choice}, Traits())]

    assert names("auto") == names(None) == ["tools_auto"]
    assert names("required") == names(NAMED) == names(ONLY_CLOCK) == ["tools_forced"]
    assert names("none") == ["tools_none"]


def test_one_call_only_without_parallel_calls() -> None:
    text = '{"name": "get_time", "arguments": {}}' * 2
    answer: Body = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": text}}]}
    assert len(objects(message(auto_response(answer, ASKED))["tool_calls"])) == 2
    single = auto_response(answer, {**ASKED, "parallel_tool_calls": False})
    assert len(objects(message(single)["tool_calls"])) == 1


def test_offered_tools() -> None:
    assert offered_tools(ASKED) == [WEATHER, CLOCK]
    assert offered_tools({**ASKED, "tool_choice": NAMED}) == [CLOCK]
    assert offered_tools({**ASKED, "tool_choice": ONLY_CLOCK}) == [CLOCK]


@pytest.mark.slow
def test_qwen_calls_by_itself(qwen: Live) -> None:
    assert qwen.traits.template_has_tools
    assert "tool_calls" not in message(qwen.bare(CHAT, ASKED)), "the server reads them now: drop ours"
    for choice in (None, "auto", "required"):
        called = function(qwen.mended(CHAT, {**ASKED, "tool_choice": choice}))
        assert called["name"] == "get_weather"
        assert json.loads(str(called["arguments"])) == {"city": "Paris"}
    parts = qwen.mended_stream(CHAT, ASKED)
    deltas = [one for part in parts for one in objects(inner(first(part), "delta").get("tool_calls"))]
    assert [inner(one, "function")["name"] for one in deltas] == ["get_weather"]


@pytest.mark.slow
def test_qwen_keeps_to_none_and_named(qwen: Live) -> None:
    hidden = qwen.mended(CHAT, {**ASKED, "tool_choice": "none", "max_tokens": 8})
    assert isinstance(message(hidden)["content"], str)
    assert function(qwen.mended(CHAT, {**ASKED, "tool_choice": NAMED}))["name"] == "get_time"
    assert message(qwen.bare(CHAT, {**ASKED, "tool_choice": NAMED}))["content"] != "get_time"


@pytest.mark.slow
def test_qwen_answers_in_words_though_it_might_call(qwen: Live) -> None:
    asked: Body = {**ASKED, "messages": user("Say hello in one word."), "max_tokens": 20}
    parts = qwen.mended_stream(CHAT, asked)
    whole = qwen.mended(CHAT, asked)
    assert texts(parts) == (message(whole)["content"] or "")
