"""Chats that are stored and found again, through OpenAI's client, against a real model."""

import json
from typing import Any

import pytest
from openai import NotFoundError, OpenAI

from tests.system.product import CHAT, CODER, Product

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}},
    },
}
HELLO: dict[str, Any] = {
    "model": CHAT,
    "messages": [{"role": "user", "content": "Say hello."}],
    "max_tokens": 6,
    "temperature": 0,
    "store": True,
}


def test_a_stream_is_stored_as_a_plain_answer_is(client: OpenAI) -> None:
    asked = HELLO | {"logprobs": True, "top_logprobs": 2, "metadata": {"test": "same"}}
    plain = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert {chunk.usage for chunk in chunks} == {None}, "nobody asked for it"
    first, second = [client.chat.completions.retrieve(made) for made in (plain.id, chunks[0].id)]
    assert first.choices == plain.choices
    assert first.usage == plain.usage
    assert second.choices[0].message.content == first.choices[0].message.content
    assert second.choices[0].finish_reason == first.choices[0].finish_reason == "length"
    tokens = [[each.token for each in stored.choices[0].logprobs.content or []] for stored in (first, second)]  # type: ignore[union-attr]
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 6
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.completion_tokens == first.usage.completion_tokens == 6
    assert second.usage.prompt_tokens == first.usage.prompt_tokens
    assert second.model_dump().keys() >= first.model_dump().keys()


@pytest.mark.parametrize("flows", [False, True])
def test_a_forced_call_is_stored(client: OpenAI, *, flows: bool) -> None:
    asked: dict[str, Any] = {
        "model": CODER,
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "temperature": 0,
        "store": True,
    }
    made: Any
    if flows:
        with client.chat.completions.stream(**asked) as stream:
            made = stream.get_final_completion()
    else:
        made = client.chat.completions.create(**asked)
    stored: Any = client.chat.completions.retrieve(made.id)
    (call,) = stored.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments).keys() == {"city"}
    (told,) = made.choices[0].message.tool_calls
    assert (call.id, call.function.arguments) == (told.id, told.function.arguments)
    assert (stored.tools, stored.tool_choice) == (asked["tools"], asked["tool_choice"])


def test_several_answers(client: OpenAI) -> None:
    asked = HELLO | {"n": 2, "temperature": 1, "seed": 4}
    made = client.chat.completions.create(**asked)
    assert client.chat.completions.retrieve(made.id).choices == made.choices
    texts = ["", ""]
    chunks = list(client.chat.completions.create(**asked, stream=True))
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    stored = client.chat.completions.retrieve(chunks[0].id)
    assert [choice.message.content for choice in stored.choices] == texts
    assert stored.usage is not None
    assert stored.usage.completion_tokens == 12


def test_stored_chats_are_listed_labelled_and_deleted(product: Product, client: OpenAI) -> None:
    completions = client.chat.completions
    first, second, other = [
        completions.create(**HELLO, metadata={"test": "list", "topic": topic}).id for topic in ("snow", "snow", "ice")
    ]
    unstored = client.chat.completions.create(**(HELLO | {"store": False}))
    labels = {"test": "list", "topic": "snow"}
    assert [each.id for each in completions.list(metadata=labels, limit=1)] == [first, second]
    assert [each.id for each in completions.list(metadata=labels, order="desc").data] == [second, first]
    assert [each.id for each in completions.list(metadata={"test": "list"}, after=second, model=CHAT)] == [other]
    assert [each.id for each in completions.list(metadata={"test": "list"}, model=CODER)] == []

    assert completions.update(other, metadata={"test": "list", "topic": "snow"}).metadata == labels
    assert [each.id for each in completions.list(metadata=labels)] == [first, second, other]
    assert completions.update(other, metadata=None).metadata == {}

    (message,) = completions.messages.list(first).data
    assert (message.id, message.role, message.content) == (f"{first}-0", "user", "Say hello.")

    stranger = product.client(key=product.new_key("chat-stranger")).chat.completions
    assert stranger.list().data == []
    assert completions.delete(first).deleted
    for missing in (first, unstored.id):
        with pytest.raises(NotFoundError):
            completions.retrieve(missing)
    with pytest.raises(NotFoundError):
        stranger.retrieve(second)
    with pytest.raises(NotFoundError):
        stranger.update(second, metadata={})
    with pytest.raises(NotFoundError):
        stranger.delete(second)
    with pytest.raises(NotFoundError):
        stranger.messages.list(second)
    assert completions.retrieve(second).metadata == labels
