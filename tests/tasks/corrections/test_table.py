"""The table as a whole: ordinary requests pass untouched, real answers fit OpenAI's own types."""

import timeit
from typing import Final

import orjson
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from infra.errors import EngineFailed
from infra.types import Json
from tasks.corrections.table import TABLE, complete, corrections_for, mend
from tasks.corrections.types import CHAT, COMPLETIONS, EMBEDDINGS, Body, Traits, inner, traits_of
from tests.tasks.corrections.live import Live, first, message, user

ORDINARY: Final[list[tuple[str, Body]]] = [
    (CHAT, {"messages": user("hi")}),
    (CHAT, {"messages": user("hi"), "stream": True, "stream_options": {"include_usage": True}, "n": 1}),
    (CHAT, {"messages": user("hi"), "temperature": 0.2, "max_tokens": 5, "logprobs": False, "tools": None}),
    (CHAT, {"messages": user("hi"), "response_format": {"type": "json_object"}}),
    (COMPLETIONS, {"prompt": "hi", "max_tokens": 5}),
    (EMBEDDINGS, {"input": ["a", "b"], "encoding_format": "base64"}),
]


@pytest.mark.parametrize(("path", "body"), ORDINARY)
def test_ordinary_requests_need_no_correction(path: str, body: Body) -> None:
    if body.get("tools", 0) is None:
        body = {key: value for key, value in body.items() if key != "tools"}
    assert corrections_for(path, body, Traits()) == ()


def test_finding_that_out_is_cheap() -> None:
    body: Body = {"model": "m", "messages": user("hi"), "temperature": 0.7, "stream": True, "max_tokens": 5}
    best_s = min(timeit.repeat(lambda: mend(CHAT, body, Traits()), number=500, repeat=7)) / 500
    assert best_s < 50e-6, "measured at 3 µs on a quiet machine"


def test_every_correction_has_a_name_and_a_reason() -> None:
    names = [correction.name for correction in TABLE]
    assert len(set(names)) == len(names)
    assert all(correction.why and correction.paths for correction in TABLE)


def test_corrections_change_no_request_in_place() -> None:
    body: Body = {
        "messages": [*user("hi"), {"role": "assistant", "content": None, "refusal": "No."}],
        "tools": [{"type": "function", "function": {"name": "look"}}],
        "tool_choice": "required",
        "logprobs": True,
        "n": 2,
        "enable_thinking": False,
    }
    before = orjson.dumps(body)
    mending = mend(CHAT, body, Traits(template_has_tools=False))
    assert mending is not None
    assert len(mending.steps) == 5
    assert orjson.dumps(body) == before


def test_a_limit_alone_leaves_the_answer_alone() -> None:
    mending = mend(COMPLETIONS, {"prompt": "hi"}, Traits())
    assert mending is not None
    assert mending.body["max_tokens"] == 16
    assert not mending.touches_answer


def test_a_far_service_gets_nothing_but_the_question_for_usage() -> None:
    service = Traits(service=True)
    body: Body = {"messages": user("hi"), "n": 2, "tools": [], "stream": True}
    mending = mend(CHAT, body, service)
    assert mending is not None
    assert mending.body == {**body, "stream_options": {"include_usage": True}}
    stream = b'data: {"choices":[{"delta":{}}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":1}}\n\ndata: [DONE]\n\n'
    mender = mending.stream()
    assert mender.feed(stream[:50]) + mender.feed(stream[50:]) + mender.finish() == (
        b'data: {"choices":[{"delta":{}}]}\n\ndata: [DONE]\n\n'
    )
    assert mend(CHAT, {**body, "stream_options": {"include_usage": True}}, service) is None
    assert mend(CHAT, {"messages": user("hi"), "n": 2}, service) is None


def test_an_answer_that_is_no_json_is_the_engines_fault() -> None:
    mending = mend(CHAT, {"messages": user("hi"), "logprobs": True}, Traits())
    assert mending is not None
    with pytest.raises(EngineFailed):
        mending.answer(b"<html>")
    with pytest.raises(EngineFailed):
        mending.answer(b"[]")


def test_traits_come_from_props() -> None:
    assert traits_of({"chat_template_caps": {"supports_tools": False}}) == Traits(template_has_tools=False)
    assert traits_of({"chat_template_caps": {"supports_tools": True}}) == traits_of({}) == Traits()


def test_an_ordinary_chat_answer_is_completed(tiny: Live) -> None:
    body: Body = {
        "model": "m",
        "messages": user('"index":0,"message":{"role":"assistant",'),
        "max_tokens": 4,
        "seed": 1,
    }
    raw = tiny.bare(CHAT, body)
    assert "refusal" not in message(raw)
    assert "logprobs" not in first(raw)
    answer = tiny.mended(CHAT, body)
    assert message(answer)["refusal"] is None
    assert first(answer)["logprobs"] is None
    assert message(answer)["content"] == message(raw)["content"]


def test_completing_keeps_log_probabilities_and_other_forms() -> None:
    with_logprobs = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"logprobs":{"content":[]}}]}'
    assert orjson.loads(complete(with_logprobs))["choices"][0]["logprobs"] == {"content": []}
    tricky = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"\\"logprobs\\":{"}}]}'
    assert orjson.loads(complete(tricky))["choices"][0]["logprobs"] is None
    for other in (b"", b"{}", b'{"error":{"message":"x"}}'):
        assert complete(other) == other


CHATS: Final[list[Body]] = [
    {},
    {"n": 2, "temperature": 1},
    {"logprobs": True},
    {"logprobs": True, "top_logprobs": 2, "n": 2},
    {"max_tokens": 0},
    {"tools": [{"type": "function", "function": {"name": "look"}}]},
    {"tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": "required"},
    {"functions": [{"name": "look"}], "function_call": {"name": "look"}},
    {"stop": ["a"], "response_format": {"type": "json_object"}},
]


@pytest.mark.parametrize("fields", CHATS)
def test_chats_fit_the_clients_types(tiny: Live, fields: Body) -> None:
    body: Body = {"model": "m", "messages": user("hi"), "max_tokens": 12, "temperature": 0, **fields}
    ChatCompletion.model_validate(tiny.mended(CHAT, body))
    parts = tiny.mended_stream(CHAT, {**body, "stream_options": {"include_usage": True}})
    for part in parts:
        ChatCompletionChunk.model_validate(part)
    assert [bool(inner(part, "usage")) for part in parts] == [False] * (len(parts) - 1) + [True]


TEXTS: Final[list[Body]] = [
    {},
    {"prompt": ["a", "b", "c"]},
    {"prompt": [5, 6]},
    {"prompt": [[5, 6], [7]], "n": 2},
    {"logprobs": 0, "echo": True, "suffix": "x", "best_of": 0},
    {"logprobs": 3, "n": 2},
    {"max_tokens": 0, "echo": True},
]


@pytest.mark.parametrize("fields", TEXTS)
def test_completions_fit_the_clients_types(tiny: Live, fields: Body) -> None:
    body: Body = {"model": "m", "prompt": "hi", "max_tokens": 5, "temperature": 0, **fields}
    answer = tiny.mended(COMPLETIONS, body)
    Completion.model_validate(answer)
    parts = tiny.mended_stream(COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    for part in parts:
        unfinished: list[Json] = [
            {**choice, "finish_reason": choice["finish_reason"] or "stop"} for choice in _choices(part)
        ]
        Completion.model_validate({**part, "choices": unfinished})
    assert inner(parts[-1], "usage")["total_tokens"] == inner(answer, "usage")["total_tokens"]


def _choices(part: Body) -> list[Body]:
    choices = part["choices"]
    assert isinstance(choices, list)
    return [choice for choice in choices if isinstance(choice, dict)]
