"""The forms of messages."""

import pytest

from api.openai.schemas import chat
from api.openai.schemas.messages import MAX_MESSAGES
from infra.errors import InvalidRequest
from infra.types import Json

CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}

USER: Json = {"role": "user", "content": "x"}


def check(*messages: Json) -> None:
    chat.check({"model": "m", "messages": list(messages)})


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": [{"type": "text", "text": "s"}]},
        {"role": "user", "content": "", "name": "bob"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]},
        {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]},
        {"role": "assistant"},
        {"role": "assistant", "content": None, "refusal": "No.", "reasoning_content": "…", "annotations": []},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": ""}},
        {"role": "tool", "content": "x", "tool_call_id": "call_1"},
        {"role": "function", "content": "x", "name": "look"},
    ],
)
def test_every_form_is_taken(message: Json) -> None:
    check(message)


@pytest.mark.parametrize(
    ("message", "param", "told"),
    [
        ("hi", "messages.0", "must be an object"),
        ({"content": "x"}, "messages.0.role", "is required"),
        ({"role": "king", "content": "x"}, "messages.0.role", "must be one of 'user', 'assistant'"),
        ({"role": "user"}, "messages.0.content", "is required"),
        ({"role": "user", "content": 5}, "messages.0.content", "must be a string or a list"),
        ({"role": "user", "content": None}, "messages.0.content", "must be a string or a list"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages.0.content.0.text", "is required"),
        ({"role": "user", "content": [{"type": "smell"}]}, "messages.0.content.0.type", "must be one of 'text'"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, "messages.0.content.0.image_url", ""),
        ({"role": "tool", "content": "x"}, "messages.0.tool_call_id", "is required"),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "x"}}]},
            "messages.0.tool_calls.0.function.arguments",
            "is required",
        ),
    ],
)
def test_what_is_wrong_is_named(message: Json, param: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(message)
    assert caught.value.param == param
    assert told in caught.value.message


def test_none_and_too_many_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="must not be empty"):
        check()
    with pytest.raises(InvalidRequest, match=f"more than the {MAX_MESSAGES} entries"):
        check(*[USER] * 100_000)
