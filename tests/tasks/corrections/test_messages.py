"""Messages in forms that the server refuses or drops."""

from typing import Final

import pytest

from infra.types import Json
from tasks.corrections.messages import request
from tasks.corrections.table import corrections_for, mend
from tasks.corrections.types import CHAT, Body, Traits, inner, objects
from tests.tasks.corrections.live import Live, message, texts, user


def called(arguments: str, content: Json = None) -> Body:
    function: Body = {"name": "look", "arguments": arguments}
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }


def plain(one: Body) -> Body:
    return objects(request({"messages": [one]}, Traits())["messages"])[0]


FINE: Final[list[Body]] = [
    {"role": "user", "content": [{"type": "text", "text": "a"}]},
    {"role": "assistant", "content": "a", "refusal": None},
    {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
    called("{}"),
    called('{"a": 1}', ""),
    {"role": "tool", "content": "a", "tool_call_id": "c"},
]


@pytest.mark.parametrize("one", FINE)
def test_ordinary_messages_stay(one: Body) -> None:
    assert corrections_for(CHAT, {"messages": [*user("a"), one]}, Traits()) == ()


@pytest.mark.parametrize(
    ("one", "content"),
    [
        ({"role": "assistant"}, ""),
        ({"role": "assistant", "content": None, "refusal": "No."}, "No."),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "No."}]},
            "aNo.",
        ),
    ],
)
def test_the_server_takes_them_only_mended(tiny: Live, one: Body, content: str) -> None:
    body: Body = {"messages": [*user("a"), one, *user("b")], "max_tokens": 2, "temperature": 0}
    assert plain(one) == {"role": "assistant", "content": content}
    tiny.mended(CHAT, body)
    status, _ = tiny.raw("/v1/chat/completions", body)
    assert status == (200 if "refusal" in one else 400)


@pytest.mark.parametrize("said", [["The answer is"], ["The answer", "is"]])
def test_what_the_assistant_said_last_is_answered_and_not_repeated(tiny: Live, said: list[str]) -> None:
    last: list[Json] = [{"role": "assistant", "content": each} for each in said]
    body: Body = {"messages": [*user("a"), *last], "max_tokens": 8, "temperature": 0}
    answer = tiny.mended(CHAT, body)
    assert "answer" not in str(message(answer)["content"])
    assert texts(tiny.mended_stream(CHAT, body)) == message(answer)["content"]


@pytest.mark.parametrize(
    ("arguments", "mended"),
    [
        ("", "{}"),
        ("null", "{}"),
        ("nonsense", '{"value":"nonsense"}'),
        ("[1]", '{"value":[1]}'),
        ('{"a":1}', '{"a":1}'),
    ],
)
def test_arguments_are_objects(arguments: str, mended: str) -> None:
    one = objects(plain(called(arguments))["tool_calls"])[0]
    assert inner(one, "function")["arguments"] == mended


def test_functions_are_tools() -> None:
    assert plain({"role": "function", "name": "look", "content": None}) == {
        "role": "tool",
        "tool_call_id": "call_look",
        "name": "look",
        "content": "",
    }
    asked = plain({"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}})
    (one,) = objects(asked["tool_calls"])
    assert one == {"id": "call_look", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert "function_call" not in asked


@pytest.mark.slow
def test_qwen_takes_broken_arguments_and_functions(qwen: Live) -> None:
    answered: Body = {"role": "tool", "tool_call_id": "c", "content": "sunny"}
    broken: Body = {"messages": [*user("a"), called("nonsense"), answered], "max_tokens": 4, "temperature": 0}
    assert qwen.raw("/v1/chat/completions", broken)[0] == 500
    assert message(qwen.mended(CHAT, broken))["content"]
    older: Body = {
        **broken,
        "messages": [
            *user("a"),
            {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "sunny and warm"},
        ],
    }
    bare = inner(qwen.bare(CHAT, older), "usage")["prompt_tokens"]
    mended = inner(qwen.mended(CHAT, older), "usage")["prompt_tokens"]
    assert isinstance(bare, int)
    assert isinstance(mended, int)
    assert mended > bare + 10, "the template drops the function's answer"


@pytest.mark.parametrize(
    ("fields", "switched"),
    [
        ({"enable_thinking": False}, False),
        ({"enable_thinking": True}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "none", "enable_thinking": True}, True),
    ],
)
def test_thinking_is_switched_in_the_template(fields: Body, switched: bool) -> None:
    mending = mend(CHAT, {"messages": user("a"), **fields}, Traits())
    assert mending is not None
    assert mending.body["chat_template_kwargs"] == {"enable_thinking": switched}
    assert "enable_thinking" not in mending.body
    assert not mending.touches_answer


def test_thinking_stays_where_nothing_is_said() -> None:
    assert mend(CHAT, {"messages": user("a"), "reasoning_effort": "low", "enable_thinking": None}, Traits()) is None
