"""What of a chat is stored, and how it is shown."""

from typing import Any

import pytest

from api.openai.chats.shapes import completion_of, is_whole, labels_of, message_shown, messages_of
from infra.types import ChatId, RunId
from tests.fakes import make_entry

RUN = RunId("run-1")
CHOICE: Any = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
ANSWER: Any = {"id": "c", "created": 7, "model": "file.gguf", "choices": [CHOICE], "timings": {"prompt_n": 1}}


def test_a_completion_repeats_what_it_was_asked_with() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    request: Any = {"tools": tools, "tool_choice": "auto", "seed": 3, "temperature": 0, "user": "u", "max_tokens": 9}
    entry = make_entry("m", sampling={"temperature": 0.7, "top_p": 0.9})
    assert completion_of(ANSWER, request, entry, RUN) == {
        "id": "c",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [CHOICE],
        "request_id": "run-1",
        "service_tier": "default",
        "input_user": "u",
        "tool_choice": "auto",
        "tools": tools,
        "response_format": None,
        "seed": 3,
        "temperature": 0,
        "top_p": 0.9,
        "presence_penalty": None,
        "frequency_penalty": None,
    }


def test_what_a_service_says_of_itself_stays_and_what_it_leaves_out_is_filled_in() -> None:
    answer: Any = {"choices": [CHOICE], "service_tier": "flex", "usage": {"total_tokens": 1}}
    made: Any = completion_of(answer, {}, make_entry("m"), RUN)
    assert (made["service_tier"], made["usage"]) == ("flex", {"total_tokens": 1})
    assert made["created"] > 1_700_000_000


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        (ANSWER, True),
        (ANSWER | {"error": None}, True),
        (ANSWER | {"error": {"message": "no"}}, False),
        ({"choices": []}, False),
        ({}, False),
    ],
)
def test_an_error_is_no_answer(answer: Any, whole: bool) -> None:
    assert is_whole(answer) == whole


def test_labels_and_messages_of_a_request() -> None:
    assert labels_of({"metadata": {"a": "b"}}) == {"a": "b"}
    assert labels_of({"metadata": None}) == labels_of({}) == {}
    assert messages_of({"messages": [{"role": "user", "content": "hi"}]}) == [{"role": "user", "content": "hi"}]


def test_a_message_is_shown_under_an_id_of_its_own() -> None:
    chat = ChatId("chatcmpl-1")
    shown = message_shown(chat, 2, {"role": "user", "content": "hi", "id": "mine"})
    assert shown == {
        "id": "chatcmpl-1-2", "role": "user", "content": "hi", "content_parts": None, "name": None, "refusal": None,
    }  # fmt: skip
    parts: Any = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    shown = message_shown(chat, 0, {"role": "user", "content": parts, "name": "ann"})
    assert (shown["content"], shown["content_parts"], shown["name"]) == (None, parts, "ann")
    call: Any = {"role": "assistant", "tool_calls": [{"id": "c"}], "refusal": "no"}
    shown = message_shown(chat, 1, call)
    assert (shown["content"], shown["tool_calls"], shown["refusal"]) == (None, [{"id": "c"}], "no")
