"""Chunks put together."""

from typing import Any

from tasks.corrections.gather import Gathered
from tasks.corrections.types import Body


def gathered(*choices: dict[str, Any]) -> Gathered:
    """Of a stream whose chunks have one choice each."""
    made = Gathered()
    for choice in choices:
        made.add({"id": "x", "object": "chat.completion.chunk", "created": 7, "choices": [{"index": 0, **choice}]})
    return made


def the_choice(made: Gathered) -> Any:
    answer: Any = made.answer("chat.completion", {})
    (choice,) = answer["choices"]
    return choice


def test_texts_of_a_message() -> None:
    made = gathered(
        {"delta": {"role": "assistant", "content": None}},
        {"delta": {"reasoning_content": "h"}},
        {"delta": {"reasoning_content": "m"}},
        {"delta": {"content": "Hel"}},
        {"delta": {"role": "assistant", "content": "lo."}},
        {"delta": {"content": None}, "finish_reason": "stop"},
    )
    assert the_choice(made) == {
        "index": 0,
        "finish_reason": "stop",
        "logprobs": None,
        "message": {"role": "assistant", "content": "Hello.", "refusal": None, "reasoning_content": "hm"},
    }
    assert (made.begun, made.finished) == (1, {0})


def test_a_refusal_and_the_older_call() -> None:
    made = gathered(
        {"delta": {"refusal": "I "}},
        {"delta": {"refusal": "won't."}},
        {"delta": {"function_call": {"name": "f", "arguments": '{"a"'}}},
        {"delta": {"function_call": {"arguments": ":1}"}}},
    )
    message = the_choice(made)["message"]
    assert message["refusal"] == "I won't."
    assert message["function_call"] == {"name": "f", "arguments": '{"a":1}'}
    assert not made.finished


def test_calls_that_come_one_within_the_other() -> None:
    def call(index: int, **fields: Any) -> dict[str, Any]:
        return {"delta": {"tool_calls": [{"index": index, **fields}]}}

    made = gathered(
        call(0, id="a", type="function", function={"name": "f", "arguments": ""}),
        call(1, id="b", type="custom", custom={"name": "g", "input": "x"}),
        call(0, function={"arguments": "{"}),
        call(1, custom={"input": "y"}),
        call(0, id="a", type="function", function={"name": "f", "arguments": "}"}),
    )
    assert the_choice(made)["message"]["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "type": "custom", "custom": {"name": "g", "input": "xy"}},
    ]


def test_empty_names_and_ends_say_nothing() -> None:
    """Some services repeat them so in each chunk."""

    def call(**fields: Any) -> dict[str, Any]:
        return {"delta": {"role": "", "tool_calls": [{"index": 0, **fields}]}, "finish_reason": ""}

    made = gathered(
        {"delta": {"role": "assistant"}, "finish_reason": ""},
        call(id="", type="", function={"name": "", "arguments": ""}),
        call(id="a", type="function", function={"name": "f", "arguments": "{"}),
        call(id="", type="", function={"name": "", "arguments": "}"}),
    )
    assert not made.finished
    made.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    made.add({"choices": [{"index": 0, "delta": {}, "finish_reason": ""}]})
    assert made.finished == {0}
    choice = the_choice(made)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]


def test_log_probabilities_follow_each_other() -> None:
    one, two = {"token": "a", "logprob": -1.0, "top_logprobs": []}, {"token": "b", "logprob": -2.0, "top_logprobs": []}
    made = gathered(
        {"delta": {"content": "a"}, "logprobs": {"content": [one], "refusal": None}},
        {"delta": {"content": "b"}, "logprobs": {"content": [two]}},
        {"delta": {}, "logprobs": None, "finish_reason": "stop"},
    )
    assert the_choice(made)["logprobs"] == {"content": [one, two], "refusal": None}


def test_choices_in_any_order_and_fields_that_come_late() -> None:
    made = Gathered()
    chunks: list[Body] = [
        {"id": "x", "model": "m", "choices": [{"index": 1, "delta": {"content": "B"}}]},
        {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "A"}, "finish_reason": "stop"}]},
        {"id": "y", "model": "m", "system_fingerprint": "fp", "choices": [{"index": 1, "finish_reason": "length"}]},
        {"id": "x", "model": "m", "choices": [], "obfuscation": "x7", "usage": {"total_tokens": 3}, "timings": {}},
    ]
    for chunk in chunks:
        made.add(chunk)
    answer: Any = made.answer("chat.completion", made.usage)
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["A", "B"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "length"]
    assert {name: value for name, value in answer.items() if name != "choices"} == {
        "id": "x",
        "model": "m",
        "system_fingerprint": "fp",
        "object": "chat.completion",
        "usage": {"total_tokens": 3},
    }


def test_a_completion_s_text() -> None:
    made = gathered({"text": "a"}, {"text": "b", "finish_reason": "length"})
    assert the_choice(made) == {"index": 0, "finish_reason": "length", "logprobs": None, "text": "ab"}


def test_nothing() -> None:
    assert Gathered().answer("chat.completion", {}) == {"object": "chat.completion", "choices": []}
