"""How long an answer is, and the echo."""

from tasks.corrections.table import mend
from tasks.corrections.types import CHAT, COMPLETIONS, Body, Traits, choices_of, inner
from tests.tasks.corrections.live import Live, first, message, texts, user


def test_a_completion_without_a_limit_gets_openais(tiny: Live) -> None:
    body: Body = {"prompt": "hi", "temperature": 0, "ignore_eos": True}
    assert inner(tiny.mended(COMPLETIONS, body), "usage")["completion_tokens"] == 16
    mending = mend(COMPLETIONS, {**body, "max_tokens": None}, Traits())
    assert mending is not None
    assert mending.body["max_tokens"] == 16


def test_no_tokens_are_none(tiny: Live) -> None:
    body: Body = {"messages": user("hi"), "temperature": 0, "max_tokens": 0}
    assert inner(tiny.bare(CHAT, body), "usage")["completion_tokens"] == 1
    answer = tiny.mended(CHAT, body)
    assert message(answer)["content"] == ""
    assert first(answer)["finish_reason"] == "length"
    assert inner(answer, "usage")["completion_tokens"] == 0
    parts = tiny.mended_stream(CHAT, {**body, "stream_options": {"include_usage": True}})
    assert texts(parts) == ""
    assert inner(parts[-1], "usage")["completion_tokens"] == 0


def test_the_newer_limit_goes_first(tiny: Live) -> None:
    body: Body = {"messages": user("hi"), "temperature": 0, "max_tokens": 0, "max_completion_tokens": 3}
    assert mend(CHAT, body, Traits()) is None
    assert inner(tiny.bare(CHAT, body), "usage")["completion_tokens"] == 3


def test_echo_repeats_each_prompt_once(tiny: Live) -> None:
    body: Body = {"prompt": ["one ", "two "], "n": 2, "max_tokens": 2, "temperature": 0, "echo": True}
    assert not str(first(tiny.bare(COMPLETIONS, body))["text"]).startswith("one ")
    answer = tiny.mended(COMPLETIONS, body)
    begun = [str(choice["text"])[:4] for choice in choices_of(answer)]
    assert begun == ["one ", "one ", "two ", "two "]
    parts = tiny.mended_stream(COMPLETIONS, body)
    assert [texts(parts, index) for index in range(4)] == [choice["text"] for choice in choices_of(answer)]


def test_echo_of_nothing_is_the_prompt(tiny: Live) -> None:
    body: Body = {"prompt": "one ", "max_tokens": 0, "echo": True}
    assert first(tiny.mended(COMPLETIONS, body))["text"] == "one "
    assert texts(tiny.mended_stream(COMPLETIONS, body)) == "one "
