"""Who gets how many items, as tables; the steps around the parts survive JSON."""

from typing import Any

import pytest

from flows.distribute import Cut, Share, Spread, in_parts, is_worth_splitting, merge_step, part_steps, shares
from flows.plan import Plan, StepId, TaskName
from infra.types import EngineId, PoolId
from tests.fakes import make_entry
from workers.sites import Site
from workers.types import Capability, ModelEntry

LEAST = 4


def sites(*speeds: float | None, cold: int = 0) -> list[Site]:
    """Sites a, b, … with these speeds, the last `cold` of them without the model."""
    names = "abcdefghij"[: len(speeds)]
    return [
        Site(PoolId(name), EngineId(f"{name}/m"), place < len(speeds) - cold, speed)
        for place, (name, speed) in enumerate(zip(names, speeds, strict=True))
    ]


def sizes(count: int, given: list[Site], **distribute: Any) -> dict[str, int]:
    parts = shares(count, make_entry(distribute=distribute), given, LEAST)
    assert [part.first for part in parts] == [sum(each.items for each in parts[:place]) for place in range(len(parts))]
    assert sum(part.items for part in parts) in (0, count)
    return {str(part.pool): part.items for part in parts}


@pytest.mark.parametrize(
    ("count", "speeds", "expected"),
    [
        (8, (None, None), {"a": 4, "b": 4}),
        (7, (None, None), {"a": 4, "b": 3}),
        (12, (2.0, 1.0), {"a": 8, "b": 4}),
        (28, (10.0, 10.0, 10.0, 5.0), {"a": 8, "b": 8, "c": 8, "d": 4}),
        (10, (4.0, None), {"a": 5, "b": 5}),
        (10, (6.0, 2.0, None), {"a": 6, "b": 1, "c": 3}),
        (6, (100.0, 1.0), {}),
        (6, (100.0, 100.0, 1.0), {"a": 3, "b": 3}),
    ],
)
def test_parts_follow_what_was_delivered(
    count: int, speeds: tuple[float | None, ...], expected: dict[str, int]
) -> None:
    assert sizes(count, sites(*speeds)) == expected


def test_the_last_to_finish_finishes_as_early_as_it_can() -> None:
    """However many there are, giving one item to somebody else would make it later."""
    speeds = {"a": 3.0, "b": 2.5, "c": 1.0}
    for count in range(LEAST, 60):
        given = sizes(count, sites(*speeds.values()))
        last = max(items / speeds[pool] for pool, items in given.items())
        assert all((given.get(pool, 0) + 1) / speed > last - 1e-9 for pool, speed in speeds.items())


@pytest.mark.parametrize(
    ("count", "speeds", "distribute"),
    [
        (LEAST - 1, (None, None), {}),
        (9, (None, None), {"min_items": 10}),
        (20, (None, None), {"enabled": False}),
        (20, (None, None), {"max_parts": 1}),
        (20, (None,), {}),
        (20, (), {}),
    ],
    ids=["too few", "too few for the model", "off", "one part", "one engine", "no engine"],
)
def test_what_is_not_split(count: int, speeds: tuple[float | None, ...], distribute: dict[str, Any]) -> None:
    assert sizes(count, sites(*speeds), **distribute) == {}


def test_no_more_parts_than_allowed() -> None:
    assert sizes(20, sites(None, None, None), max_parts=2) == {"a": 10, "b": 10}
    assert sizes(2, sites(None, None, None), min_items=2) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("count", "speed", "loads"), [(63, None, False), (64, None, True), (500, 100.0, False), (1100, 100.0, True)]
)
def test_a_load_is_worth_it_for_a_large_request_only(count: int, speed: float | None, loads: bool) -> None:
    """16 times what is worth a split; or what would take ten seconds otherwise."""
    assert bool(sizes(count, sites(speed, None, cold=1))) is loads


def test_a_cold_model_is_loaded_on_one_card_unless_the_request_is_large() -> None:
    assert sizes(20, sites(None, None, cold=2)) == {}
    assert sizes(100, sites(None, None, cold=2)) == {"a": 50, "b": 50}


def test_the_cluster_is_looked_at_only_for_what_may_be_split() -> None:
    asked: list[str] = []

    def look(entry: Any) -> tuple[Site, ...]:
        asked.append(entry.name)
        return tuple(sites(None, None))

    spread = Spread(lambda request: len(str(request["input"])), LEAST, lambda _request, _entry, _sites: None)
    assert not is_worth_splitting(3, make_entry(), LEAST)
    assert in_parts(spread, {"input": "abc"}, make_entry(), Cut(look)) is None
    assert asked == []
    assert in_parts(spread, {"input": "abcd"}, make_entry(), Cut(look)) is None
    assert asked == ["m"]


@pytest.mark.parametrize(
    ("given", "homes"),
    [((None, 50.0), ["a", "b", "a"]), ((1.0,), ["a", "a", "a"]), ((), [None, None, None])],
    ids=["two", "one", "none is free"],
)
def test_a_request_that_was_begun_is_cut_as_then(given: tuple[float | None, ...], homes: list[str | None]) -> None:
    kept: list[Share] = []

    def plan(_request: Any, entry: ModelEntry, found: tuple[Site, ...]) -> None:
        kept.extend(shares(12, entry, found, LEAST))

    cut = Cut(lambda _entry: tuple(sites(*given)), (7, 1, 4))
    in_parts(Spread(lambda _request: 12, LEAST, plan), {}, make_entry(), cut)
    assert [(share.first, share.items) for share in kept] == [(0, 7), (7, 1), (8, 4)]
    assert [share.pool for share in kept] == homes


def test_the_steps_around_the_parts() -> None:
    entry = make_entry(distribute={"hedge": True})
    given = (Share(PoolId("a"), 0, 3), Share(PoolId("b"), 3, 2))
    steps = part_steps(given, entry, Capability.EMBEDDINGS, TaskName("embed_part"), [{"x": 1}, {"x": 2}])
    plan = Plan("embeddings", entry.name, (*steps, merge_step(TaskName("merge"), {}, steps)))
    split, one, two, merge = plan.steps
    assert (split.inputs, split.demand) == ({"sizes": [3, 2]}, None)
    assert (one.id, one.inputs, one.items, one.hedge, one.refs) == ("part-1", {"x": 1}, 3, True, {"split": "split"})
    assert two.demand is not None
    assert (two.demand.home, two.demand.pin) == ("b", None)
    assert merge.refs == {name: StepId(name) for name in ("split", "part-1", "part-2")}
    assert Plan.from_json(plan.to_json()) == plan
