"""Tool calls in texts."""

import json

import pytest

from tasks.corrections.calls import CallsInStream, calls_in, forced_call, may_be_call, with_calls
from tasks.corrections.types import Body, choices_of, inner, objects

NAMES = ("look", "jump")
LOOK = '{"name": "look", "arguments": {"at": "é"}}'


def read(text: str) -> list[tuple[object, object]] | None:
    calls = calls_in(text, NAMES)
    if calls is None:
        return None
    functions = [inner(one, "function") for one in calls]
    return [(function["name"], json.loads(str(function["arguments"]))) for function in functions]


@pytest.mark.parametrize(
    "text",
    [
        LOOK,
        f"\n<tool_call>\n{LOOK}\n</tool_call>",
        f"```json\n{LOOK}\n```",
        f"```\n{LOOK}```\n",
        f"[{LOOK}]",
        '{"type": "function", "function": {"name": "look", "parameters": {"at": "é"}}}',
        '{"name": "look", "arguments": "{\\"at\\": \\"é\\"}"}',
    ],
)
def test_forms_of_one_call(text: str) -> None:
    assert read(text) == [("look", {"at": "é"})]


def test_several_calls_and_none() -> None:
    assert read(f'<tool_call>{LOOK}</tool_call>\n<tool_call>{{"name": "jump"}}</tool_call>') == [
        ("look", {"at": "é"}),
        ("jump", {}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello",
        f"I call {LOOK}",
        f"{LOOK} and that was it",
        f'{LOOK}\n{{"temp_c": 21}}',
        '{"name": "fly", "arguments": {}}',
        '{"name": "look", "arguments": [1]}',
        '{"name": "look", "arguments"',
        "[]",
        "[" * 5000,
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert read(text) is None


def test_ids_differ() -> None:
    calls = calls_in(f"{LOOK}{LOOK}", NAMES)
    assert calls is not None
    assert calls[0]["id"] != calls[1]["id"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{ "name" : "look",\n "arguments": {"at": 1} }', '{"at": 1}'),
        ('{"name":"look","arguments":{"at": "x', '{"at": "x'),
        ('{"name":"look","arguments":', "{}"),
    ],
)
def test_a_forced_call_may_be_cut_off(text: str, arguments: str) -> None:
    calls = forced_call(text)
    assert calls is not None
    assert inner(calls[0], "function") == {"name": "look", "arguments": arguments}


def test_a_forced_call_cut_off_before_its_arguments_is_none() -> None:
    assert forced_call('{"name": "lo') is None


@pytest.mark.parametrize("text", ["", " ", "{", '{"na', '{"name": "x", ', "<tool", "``", "```json\n{", '[ {"function"'])
def test_beginnings_of_calls(text: str) -> None:
    assert may_be_call(text)


@pytest.mark.parametrize("text", ["Hi", "<b>", "```python\n", '{"city": ', '[{"x":', "`code`"])
def test_beginnings_of_other_things(text: str) -> None:
    assert not may_be_call(text)


def chunk(delta: Body, reason: str | None = None) -> Body:
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def streamed(pieces: list[str], reason: str = "stop", *, forced: bool = False) -> list[Body]:
    mender = CallsInStream(forced_call if forced else lambda text: calls_in(text, NAMES), forced=forced)
    given = [chunk({"role": "assistant", "content": None}), *[chunk({"content": piece}) for piece in pieces]]
    parts = [after for before in [*given, chunk({}, reason)] for after in mender.chunk(before)]
    return [choices_of(part)[0] for part in parts]


def test_a_streamed_text_goes_on_as_soon_as_it_is_no_call() -> None:
    parts = streamed(["`", "``py", "thon", " x"])
    assert [inner(part, "delta").get("content") for part in parts] == [None, "```py", "thon", " x", None]


def test_a_streamed_call_comes_at_once() -> None:
    parts = streamed([LOOK[:5], LOOK[5:20], LOOK[20:]])
    assert [part["finish_reason"] for part in parts] == [None, None, "tool_calls"]
    calls = objects(inner(parts[1], "delta")["tool_calls"])
    assert inner(calls[0], "function")["name"] == "look"
    assert calls[0]["index"] == 0


def test_a_streamed_text_that_looked_like_a_call_comes_at_the_end() -> None:
    parts = streamed(['{"name"', ": 5}"])
    assert [inner(part, "delta").get("content") for part in parts] == [None, '{"name": 5}', None]
    assert parts[-1]["finish_reason"] == "stop"


def test_a_forced_stream_cut_off_says_length() -> None:
    parts = streamed(['{"name":"look",', '"arguments":{"a'], "length", forced=True)
    assert parts[-1]["finish_reason"] == "length"
    calls = objects(inner(parts[1], "delta")["tool_calls"])
    assert inner(calls[0], "function")["arguments"] == '{"a'


def test_calls_that_the_server_has_read_stay() -> None:
    mender = CallsInStream(lambda text: calls_in(text, NAMES), forced=False)
    theirs = chunk({"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]})
    assert mender.chunk(chunk({"content": "{"})) == []
    held, passed = mender.chunk(theirs)
    assert inner(choices_of(held)[0], "delta") == {"content": "{"}
    assert passed == theirs
    assert mender.chunk(chunk({}, "tool_calls")) == [chunk({}, "tool_calls")]
    message: Body = {"content": None, "tool_calls": [{"id": "a"}]}
    answer: Body = {"choices": [{"index": 0, "message": message}]}
    assert with_calls(answer, forced_call) == answer
