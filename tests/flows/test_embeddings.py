"""Embeddings are one step with the whole list; the plan survives JSON."""

import pytest

from flows.embeddings import SPREAD_EMBEDDINGS, plan_embeddings
from flows.plan import Plan
from infra.types import EngineId, Json, PoolId
from tests.fakes import make_entry
from workers.sites import Site
from workers.types import Capability

SITES = tuple(Site(PoolId(pool), EngineId(f"{pool}/m"), True) for pool in ("a", "b"))


def test_embeddings_are_one_step() -> None:
    request: dict[str, Json] = {"input": ["a", "b"], "dimensions": None}
    plan = plan_embeddings(request, make_entry(), "ignored: vectors have no conversation")
    (only,) = plan.steps
    assert (plan.flow, only.task, only.inputs) == (
        "embeddings",
        "generate",
        {"path": "/embeddings", "request": request},
    )
    assert only.demand is not None
    assert (only.demand.capability, only.demand.affinity_key) == (Capability.EMBEDDINGS, None)
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("given", "count"), [("text", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1, 2], [3]], 2)], ids=str
)
def test_inputs_are_counted(given: Json, count: int) -> None:
    assert SPREAD_EMBEDDINGS.count({"input": given}) == count
    assert plan_embeddings({"input": given}, make_entry()).steps[0].items == count


def test_a_list_is_cut_into_parts_and_merged() -> None:
    request: dict[str, Json] = {"input": list("abcdefghijklmnopq"), "dimensions": 8, "encoding_format": "base64"}
    plan = SPREAD_EMBEDDINGS.plan(request, make_entry(), SITES)
    assert plan is not None
    split, one, two, merge = plan.steps
    assert [step.task for step in plan.steps] == ["split", "embed_part", "embed_part", "merge_embeddings"]
    assert split.inputs == {"sizes": [9, 8]}
    assert one.inputs == {"request": request | {"input": list("abcdefghi")}}
    assert two.inputs == {"request": request | {"input": list("jklmnopq")}}
    assert [step.demand.home for step in (one, two) if step.demand] == ["a", "b"]
    assert merge.inputs == {"model": "m", "encoding_format": "base64"}
    assert Plan.from_json(plan.to_json()) == plan


def test_a_short_list_is_not_cut() -> None:
    assert SPREAD_EMBEDDINGS.plan({"input": ["a"] * 15}, make_entry(), SITES) is None
    assert SPREAD_EMBEDDINGS.plan({"input": ["a"] * 16}, make_entry(), SITES[:1]) is None
