"""Log probabilities."""

import pytest

from tasks.corrections.types import CHAT, COMPLETIONS, Body, choices_of, inner, objects
from tests.tasks.corrections.live import Live, first, user

CHATTED: Body = {"messages": user("hi"), "max_tokens": 3, "temperature": 0, "logprobs": True}
WRITTEN: Body = {"prompt": "hi", "max_tokens": 3, "temperature": 0}


def test_the_engine_gives_alternatives_nobody_asked_for_or_nothing(tiny: Live) -> None:
    unasked = inner(first(tiny.bare(CHAT, CHATTED)), "logprobs")
    assert len(objects(objects(unasked["content"])[0]["top_logprobs"])) == 20
    assert "logprobs" not in first(tiny.bare(CHAT, {**CHATTED, "top_logprobs": 0}))
    assert first(tiny.bare(COMPLETIONS, {**WRITTEN, "logprobs": 0}))["logprobs"] is None
    assert "content" in inner(first(tiny.bare(COMPLETIONS, {**WRITTEN, "logprobs": 2})), "logprobs")


@pytest.mark.parametrize("top", [None, 0, 2])
def test_chat_gives_as_many_alternatives_as_asked_for(tiny: Live, top: int | None) -> None:
    body: Body = {**CHATTED, "top_logprobs": top}
    whole = inner(first(tiny.mended(CHAT, body)), "logprobs")
    assert whole["refusal"] is None
    tokens = objects(whole["content"])
    assert len(tokens) == 3
    for token in tokens:
        assert token.keys() == {"token", "bytes", "logprob", "top_logprobs"}
        assert len(objects(token["top_logprobs"])) == (top or 0)
    parts = [first(part) for part in tiny.mended_stream(CHAT, body)]
    streamed = [one for part in parts for one in objects(inner(part, "logprobs").get("content"))]
    assert [token["token"] for token in streamed] == [token["token"] for token in tokens]
    assert {len(objects(token["top_logprobs"])) for token in streamed} == {top or 0}


@pytest.mark.parametrize("most", [0, 2])
def test_completions_have_four_lists(tiny: Live, most: int) -> None:
    body: Body = {**WRITTEN, "logprobs": most}
    lists = inner(first(tiny.mended(COMPLETIONS, body)), "logprobs")
    assert lists.keys() == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert [len(value) for value in lists.values() if isinstance(value, list)] == [3] * 4
    offsets = lists["text_offset"]
    assert isinstance(offsets, list)
    assert offsets[0] == len("hi")
    tops = objects(lists["top_logprobs"])
    tokens = lists["tokens"]
    assert isinstance(tokens, list)
    assert all(str(token) in top for token, top in zip(tokens, tops, strict=True))
    assert all(len(top) <= most + 1 for top in tops)
    streamed = [inner(first(part), "logprobs") for part in tiny.mended_stream(COMPLETIONS, body)]
    places = [place for part in streamed for place in _list(part.get("text_offset"))]
    assert places == offsets


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def test_offsets_of_several_prompts_begin_after_their_own(tiny: Live) -> None:
    body: Body = {**WRITTEN, "prompt": ["a", "bbbb"], "logprobs": 1}
    begins = [
        _list(inner(choice, "logprobs")["text_offset"])[0] for choice in choices_of(tiny.mended(COMPLETIONS, body))
    ]
    assert begins == [1, 4]
