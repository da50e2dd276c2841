"""What corrections read of bodies that may hold anything."""

import pytest

from infra.types import Json
from tasks.corrections.types import (
    Body,
    Traits,
    choices_of,
    index_of,
    inner,
    number,
    objects,
    traits_of,
    with_choices,
)


@pytest.mark.parametrize(
    ("props", "tools"),
    [
        ({}, True),
        ({"chat_template_caps": None}, True),
        ({"chat_template_caps": []}, True),
        ({"chat_template_caps": {}}, True),
        ({"chat_template_caps": {"supports_tools": True}}, True),
        ({"chat_template_caps": {"supports_tools": False}}, False),
    ],
)
def test_tools_are_put_into_words_only_where_the_template_is_known_to_lack_them(props: Body, tools: bool) -> None:
    assert traits_of(props) == Traits(service=False, template_has_tools=tools)


@pytest.mark.parametrize("value", [None, 1, "text", {}, [], [1, "text", None, [{}]]])
def test_what_is_no_list_of_objects_has_none(value: Json) -> None:
    assert objects(value) == []
    assert choices_of({"choices": value}) == []
    assert choices_of({}) == []


def test_objects_in_their_order() -> None:
    assert objects([{"a": 1}, 2, {"b": 3}]) == [{"a": 1}, {"b": 3}]


def test_other_choices_leave_the_answer_as_it_was() -> None:
    answer: Body = {"id": "x", "choices": [{"index": 0}]}
    assert with_choices(answer, []) == {"id": "x", "choices": []}
    assert answer["choices"] == [{"index": 0}]


def test_the_object_within() -> None:
    assert inner({"a": {"b": 1}}, "a") == {"b": 1}
    assert inner({}, "a") == {}
    others: list[Json] = [None, [1], "b"]
    assert [inner({"a": other}, "a") for other in others] == [{}, {}, {}]


@pytest.mark.parametrize(("value", "count"), [(3, 3), (0, 0), (None, 0), ("3", 0), (2.5, 0), ([], 0)])
def test_counts(value: Json, count: int) -> None:
    assert number(value) == count
    assert index_of({"index": value}) == count
    assert index_of({}) == 0
