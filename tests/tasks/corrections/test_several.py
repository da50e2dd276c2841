"""Several answers."""

import pytest

from infra.errors import EngineFailed
from tasks.corrections.several import gather
from tasks.corrections.table import mend
from tasks.corrections.types import CHAT, COMPLETIONS, Body, choices_of, inner
from tests.tasks.corrections.live import Live, texts, user


def test_chat_counts_all_answers(tiny: Live) -> None:
    body: Body = {"messages": user("hi"), "n": 2, "max_tokens": 4, "temperature": 1, "seed": 3}
    assert inner(tiny.bare(CHAT, body), "usage")["completion_tokens"] == 4, "the engine has mended it: drop ours"
    answer = tiny.mended(CHAT, body)
    alone = inner(tiny.bare(CHAT, {**body, "n": 1}), "usage")
    assert inner(answer, "usage")["completion_tokens"] == 8
    assert inner(answer, "usage")["prompt_tokens"] == alone["prompt_tokens"]
    assert [choice["index"] for choice in choices_of(answer)] == [0, 1]


def test_whole_answers_are_those_of_the_engine(tiny: Live) -> None:
    body: Body = {"messages": user("hi"), "n": 2, "max_tokens": 8, "temperature": 1, "seed": 3}
    theirs, ours = tiny.bare(CHAT, body), tiny.mended(CHAT, body)
    assert theirs.keys() - {"timings"} == ours.keys()
    contents = [[inner(choice, "message")["content"] for choice in choices_of(answer)] for answer in (theirs, ours)]
    assert contents[0] == contents[1]


def test_several_prompts_count_all(tiny: Live) -> None:
    body: Body = {"prompt": ["a", "bb bb"], "n": 2, "max_tokens": 3, "temperature": 0}
    single = [inner(tiny.bare(COMPLETIONS, {**body, "prompt": text, "n": 1}), "usage") for text in ("a", "bb bb")]
    usage = inner(tiny.mended(COMPLETIONS, body), "usage")
    assert usage["prompt_tokens"] == sum(int(str(one["prompt_tokens"])) for one in single)
    assert usage["completion_tokens"] == 12
    assert inner(tiny.bare(COMPLETIONS, body), "usage")["completion_tokens"] == 3


@pytest.mark.parametrize("wanted", [True, False])
def test_streams_have_one_usage_chunk_at_the_end_or_none(tiny: Live, wanted: bool) -> None:
    body: Body = {"prompt": ["a", "b"], "max_tokens": 3, "temperature": 0, "stream_options": {"include_usage": wanted}}
    _, raw = tiny.raw("/v1/completions", {**body, "stream": True})
    assert raw.startswith(b"data: null")
    assert raw.count(b'"usage"') == 2
    parts = tiny.mended_stream(COMPLETIONS, body)
    assert ["usage" in part for part in parts].count(True) == wanted
    whole = tiny.mended(COMPLETIONS, body)
    assert [texts(parts, index) for index in (0, 1)] == [choice["text"] for choice in choices_of(whole)]
    if wanted:
        assert parts[-1]["choices"] == []
        assert parts[-1]["usage"] == {**inner(whole, "usage"), "prompt_tokens_details": _cached(parts[-1])}


def _cached(part: Body) -> Body:
    """How much of a prompt was in the cache differs from one run to the next."""
    return inner(inner(part, "usage"), "prompt_tokens_details")


def test_tool_calls_of_streams_are_put_together() -> None:
    begun = '{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}'
    pieces = [
        '{"index":0,"delta":{"role":"assistant","content":null}}',
        '{"index":0,"delta":{"reasoning_content":"hm"}}',
        f'{{"index":0,"delta":{{"tool_calls":[{begun}]}}}}',
        '{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a\\":"}}]}}',
        '{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}',
        '{"index":0,"delta":{},"finish_reason":"tool_calls"}',
    ]
    stream = "".join(f'data: {{"id":"x","choices":[{piece}]}}\n\n' for piece in pieces)
    answer = gather(stream.encode(), {"messages": [], "n": 1})
    assert choices_of(answer) == [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "reasoning_content": "hm",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
            },
        }
    ]


def test_an_empty_stream_is_the_engines_fault() -> None:
    with pytest.raises(EngineFailed):
        gather(b"data: [DONE]\n\n", {"messages": [], "n": 2})


def test_a_stream_is_counted_though_nobody_asked(tiny: Live) -> None:
    body: Body = {"messages": user("hi"), "n": 2, "max_tokens": 4, "temperature": 0, "stream": True}
    mending = mend(CHAT, body, tiny.traits)
    assert mending is not None
    mender = mending.stream()
    mender.feed(tiny.raw("/v1/chat/completions", mending.body)[1])
    assert mender.usage is not None
    assert mender.usage.completion_tokens == 8
