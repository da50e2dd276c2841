"""A chat answer as a response object."""

from typing import Any

import pytest

from tasks.responses.answer import begun, failed, response_of, usage_of_response

Body = dict[str, Any]
CALL: Body = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def answered(message: Body, finish_reason: str = "stop", **choice: Any) -> Body:
    chosen: Body = {"index": 0, "message": message, "finish_reason": finish_reason, **choice}
    return response_of(begun({"model": "m", "metadata": {}}), {"choices": [chosen], "usage": {"prompt_tokens": 3}})


def kinds(response: Body) -> list[str]:
    output = response["output"]
    assert isinstance(output, list)
    return [str(item["type"]) for item in output if isinstance(item, dict)]


def test_what_is_begun_is_in_progress_and_repeats_its_request() -> None:
    response = begun({"model": "m", "temperature": 0.5})
    assert (response["object"], response["status"], response["output"]) == ("response", "in_progress", [])
    assert (response["model"], response["temperature"]) == ("m", 0.5)
    assert "usage" not in response
    assert str(response["id"]).startswith("resp_")
    assert begun({})["id"] != response["id"]


def test_a_text() -> None:
    response = answered({"role": "assistant", "content": "hello"})
    assert response["status"] == "completed"
    assert response["completed_at"] is not None
    (item,) = response["output"]
    assert (item["role"], item["status"]) == ("assistant", "completed")
    assert item["content"] == [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "hello", "tool_calls": [CALL, CALL]}, ["message", "function_call", "function_call"]),
        ({"content": None, "tool_calls": [CALL]}, ["function_call"]),
        ({"content": "", "tool_calls": [CALL]}, ["function_call"]),
        ({"content": "yes", "reasoning_content": "hm"}, ["reasoning", "message"]),
        ({"content": None, "refusal": "no"}, ["message"]),
        ({"content": None}, ["message"]),
        ({"content": ""}, ["message"]),
    ],
)
def test_the_items_of_a_message(message: Body, expected: list[str]) -> None:
    assert kinds(answered(message)) == expected


def test_a_refusal_is_a_part() -> None:
    (item,) = answered({"content": None, "refusal": "no"})["output"]
    assert item["content"] == [{"type": "refusal", "refusal": "no"}]


def test_logprobs_go_with_their_text() -> None:
    logprobs: Body = {"content": [{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}]}
    (item,) = answered({"content": "a"}, logprobs=logprobs)["output"]
    assert item["content"][0]["logprobs"] == logprobs["content"]


@pytest.mark.parametrize(("reason", "why"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_ended_too_soon(reason: str, why: str) -> None:
    response = answered({"content": "hel"}, reason)
    assert (response["status"], response["incomplete_details"], response["completed_at"]) == (
        "incomplete",
        {"reason": why},
        None,
    )
    assert response["output"][0]["status"] == "incomplete"


def test_a_call_without_an_id_gets_one() -> None:
    (item,) = answered({"content": None, "tool_calls": [{"function": {"name": "f"}}]})["output"]
    assert str(item["call_id"]).startswith("call_")
    assert item["arguments"] == ""


def test_a_failure() -> None:
    response = failed(begun({}), "server_error", "it broke")
    assert (response["status"], response["error"]) == ("failed", {"code": "server_error", "message": "it broke"})


def test_usage_with_its_details() -> None:
    usage: Body = {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert usage_of_response(usage) == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 10,
    }
