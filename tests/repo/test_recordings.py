"""Plans written down by earlier versions can still be read, and come back as they were."""

import json

import pytest

from flows.plan import Plan
from tests.repo.tree import files, read

RECORDINGS = [name for name in files() if name.startswith("tests/recordings/") and name.endswith(".json")]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_plan_is_still_a_plan(name: str) -> None:
    plan = Plan.from_json(read(name))
    again = json.loads(plan.to_json())
    assert _contains(again, json.loads(read(name)))
    assert Plan.from_json(plan.to_json()) == plan


def test_there_are_recordings() -> None:
    assert RECORDINGS


def _contains(new: object, old: object) -> bool:
    """Whether `new` says all that `old` said; it may say more (fields of later versions)."""
    if isinstance(new, dict) and isinstance(old, dict):
        return all(key in new and _contains(new[key], value) for key, value in old.items())
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(map(_contains, new, old))
    return new == old
