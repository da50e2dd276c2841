"""What runs have used, on its way into labels and back."""

import pytest

from infra.records import RunRecord
from infra.run_usage import RunUsage, labelled_usage, usage_labels, usage_of
from infra.types import Json, KeyName, ModelName, RunId

CHAT = RunUsage(12, 3, 4)
PAGES = RunUsage(units=2.5)


def record(**fields: float) -> RunRecord:
    made = RunRecord(RunId("r"), "chat", ModelName("m"), KeyName("ann"), 1.0, [])
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({}, None),
        ({"prompt_tokens": 12, "completion_tokens": 3, "cached_tokens": 4}, CHAT),
        ({"prompt_tokens": 0}, RunUsage()),
        ({"units": 2.5}, PAGES),
    ],
)
def test_what_a_record_tells(fields: dict[str, float], usage: RunUsage | None) -> None:
    assert usage_of(record(**fields)) == usage


@pytest.mark.parametrize("usage", [None, CHAT, PAGES, RunUsage()])
def test_labels_keep_it(usage: RunUsage | None) -> None:
    others: dict[str, Json] = {"prefect.flow.id": "1", "team": "a"}
    assert labelled_usage({**others, **usage_labels(usage)}) == usage


def test_labels_are_there_or_not() -> None:
    assert usage_labels(CHAT) == {
        "coderai.prompt_tokens": 12,
        "coderai.completion_tokens": 3,
        "coderai.cached_tokens": 4,
        "coderai.units": 0.0,
    }
    assert labelled_usage(None) is None


def test_what_is_no_count_is_none() -> None:
    wrong: dict[str, Json] = {"coderai.prompt_tokens": "many", "coderai.completion_tokens": -1, "coderai.units": None}
    assert labelled_usage(wrong) == RunUsage()


def test_executions_add_up() -> None:
    assert RunUsage(24, 6, 8, 2.5) == CHAT + PAGES + CHAT
