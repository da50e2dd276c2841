"""Validation common to all text requests."""

import timeit

import pytest

from api.openai.schemas import chat
from api.openai.schemas.shared import Body, check_amount, check_known, text_of, wants_usage
from infra.errors import InvalidRequest


def test_known_fields_pass() -> None:
    check_known({"a": 1}, frozenset({"a", "b"}))


def test_a_long_unknown_name_is_cut() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_known({"x" * 5000: 1}, frozenset({"a"}))
    assert len(caught.value.message) < 300


def test_the_product_of_answers_and_lengths_is_bounded() -> None:
    check_amount(10, 100_000)
    check_amount(128, None)
    with pytest.raises(InvalidRequest, match="fewer or shorter"):
        check_amount(11, 100_000)


def test_usage_is_wanted_only_if_said() -> None:
    assert wants_usage({"stream_options": {"include_usage": True}})
    assert not wants_usage({"stream_options": {"include_usage": False}})
    assert not wants_usage({"stream_options": None})


def test_text_of_contents() -> None:
    assert text_of("a") == "a"
    assert text_of([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, 5]) == "ab"
    assert text_of(None) == ""


def test_a_small_chat_is_checked_in_no_time() -> None:
    body: Body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0.7, "stream": True}
    best_s = min(timeit.repeat(lambda: chat.check(dict(body)), number=500, repeat=7)) / 500
    assert best_s < 50e-6, "measured at 4 µs on a quiet machine; the front's budget is 15 µs"
