"""The chat that asks for a summary, and the item that holds one: made, sealed, opened."""

import json
from pathlib import Path
from typing import Any

import pytest

from api.openai.responses.compaction import (
    ASKS,
    TELLS,
    has_compactions,
    kept_messages,
    opened,
    sealed,
    summary_chat_of,
)
from api.openai.schemas import chat
from api.seals import Seals
from infra.errors import InvalidRequest
from infra.types import Json, KeyName
from tasks.responses.compact import SUMMARY_TYPE
from tasks.types import TaskResult

ANN, BOB = KeyName("ann"), KeyName("bob")
USER: dict[str, Json] = {"type": "message", "role": "user", "content": "hi"}


@pytest.fixture
def seals(tmp_path: Path) -> Seals:
    return Seals(tmp_path / "session.key")


def chatted(*, far: bool = False, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = summary_chat_of({"model": "m", "input": "hi"} | more, far=far)
    chat.check(made, unknown_fields=far)
    return made


def test_the_wish_for_a_summary_comes_after_the_conversation() -> None:
    items = [
        USER,
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sun"},
        {"role": "assistant", "content": "Sunny."},
    ]
    asked = chatted(input=items, instructions="Be brief.", tools=[{"type": "web_search"}], text={"verbosity": "low"})
    assert [(each["role"], each["content"]) for each in asked.pop("messages")] == [
        ("system", "Be brief."),
        ("user", "hi"),
        ("assistant", None),
        ("tool", "sun"),
        ("assistant", "Sunny."),
        ("user", ASKS),
    ]
    assert (asked["model"], asked["temperature"], asked["enable_thinking"]) == ("m", 0, False)
    assert not {"tools", "text", "tool_choice", "input", "instructions"} & set(asked)


def test_a_far_model_chooses_its_words_as_it_does() -> None:
    asked = chatted(far=True, guided_regex="a+", prompt_cache_key="k", image={"context_compression": "auto"})
    assert asked == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": ASKS}],
        "guided_regex": "a+",
    }


def test_what_is_another_request_s_does_not_reach_a_far_model() -> None:
    for name, value in (
        ("stream", False),
        ("n", 3),
        ("max_output_tokens", 5),
        ("max_tokens", 5),
        ("max_completion_tokens", 5),
        ("messages", []),
        ("response_format", {"type": "json_object"}),
        ("temperature", 1.5),
        ("background", True),
    ):
        assert chatted(far=True, **{name: value}).keys() == {"model", "messages"}
    assert chatted(far=True, messages=[])["messages"][0]["content"] == "hi"


def test_what_the_user_said_stays() -> None:
    items: list[Json] = [
        {"role": "developer", "content": "rule"},
        {"role": "user", "content": " one\n", "id": "msg_1"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": [{"type": "input_text", "text": "three"}]},
        {"type": "compaction", "encrypted_content": "gAAA"},
    ]
    kept: list[Any] = kept_messages({"model": "m", "input": items})
    assert [item["content"] for item in kept] == [
        [{"type": "input_text", "text": " one\n"}],
        [{"type": "input_text", "text": "three"}],
    ]
    assert kept[0]["id"] == "msg_1"
    assert [(item["type"], item["role"], item["status"]) for item in kept] == [("message", "user", "completed")] * 2
    (plain,) = kept_messages({"model": "m", "input": "hi"})
    assert isinstance(plain, dict)
    assert plain["content"] == [{"type": "input_text", "text": "hi"}]


async def test_a_summary_goes_out_sealed_and_comes_back_as_a_message_in_its_place(seals: Seals) -> None:
    item = {"type": "compaction", "id": "cmp_1", "summary": "The cat is called Otto."}
    value = json.dumps({"id": "resp_1", "output": [USER, item], "usage": {}}).encode()
    told = await sealed(seals, ANN, TaskResult(value, media_type=SUMMARY_TYPE))
    assert told.media_type == "application/json"
    assert isinstance(told.value, bytes)
    assert b"Otto" not in told.value
    made = json.loads(told.value)
    assert set(made["output"][1]) == {"type", "id", "encrypted_content"}
    after: dict[str, Json] = {"type": "message", "role": "user", "content": "Its name?"}
    assert opened(seals, ANN, [*made["output"], after]) == [
        USER,
        {"type": "message", "role": "system", "content": f"{TELLS}The cat is called Otto."},
        after,
    ]


async def test_other_answers_go_out_as_they_are(seals: Seals) -> None:
    result = TaskResult(b'{"output": []}')
    assert await sealed(seals, ANN, result) is result


@pytest.mark.parametrize("stored", [False, True])
def test_what_does_not_open_is_named(seals: Seals, *, stored: bool) -> None:
    theirs = seals.seal("secret", BOB)
    for content in (theirs, theirs[:-4], "x" * 2**20):
        with pytest.raises(InvalidRequest) as refused:
            opened(seals, ANN, [USER, {"type": "compaction", "encrypted_content": content}], stored=stored)
        assert refused.value.param == ("previous_response_id" if stored else "input.1.encrypted_content")
        assert len(refused.value.message) < 200


def test_compactions_are_seen_in_whatever_a_client_sends() -> None:
    given: list[Json] = [None, 7, "hi", [], ["compaction"], {"type": "compaction"}]
    assert [has_compactions(each) for each in given] == [False] * 6
    assert has_compactions([7, {"type": "compaction"}])
