"""Rerank scores where the model is and ranks at the front; the plan survives JSON."""

import pytest

from flows.plan import Plan
from flows.rerank import SPREAD_RERANK, plan_rerank
from infra.types import EngineId, Json, PoolId
from tests.fakes import make_entry
from workers.sites import Site
from workers.types import Capability

SITES = tuple(Site(PoolId(pool), EngineId(f"{pool}/m"), True) for pool in ("a", "b"))
MANY: dict[str, Json] = {"query": "q", "documents": list("abcdefghijklmnop"), "top_n": 3}

REQUEST: dict[str, Json] = {"query": "q", "documents": ["a", "b"], "top_n": 1, "return_documents": True}


@pytest.mark.parametrize(
    ("method", "task", "said"),
    [("cosine", "embed", "cosine"), ("cross_encoder", "score", "cross_encoder"), (None, "score", "cross_encoder")],
)
def test_the_method_is_the_model_s(method: str | None, task: str, said: str) -> None:
    plan = plan_rerank(REQUEST, make_entry(rerank_method=method))
    scored, ranked = plan.steps
    assert (scored.task, scored.inputs) == (task, {"query": "q", "documents": ["a", "b"]})
    assert scored.demand is not None
    assert scored.demand.capability == Capability.RERANK
    assert (ranked.task, ranked.refs, ranked.demand) == ("rank", {"scored": scored.id}, None)
    assert ranked.inputs["method"] == said
    assert Plan.from_json(plan.to_json()) == plan


def test_what_the_request_leaves_out() -> None:
    ranked = plan_rerank({"query": "q", "documents": ["a"]}, make_entry()).steps[-1]
    assert ranked.inputs["top_n"] is None
    assert ranked.inputs["return_documents"] is False


def test_documents_are_cut_into_parts_scored_and_ranked_together() -> None:
    plan = SPREAD_RERANK.plan(MANY, make_entry(rerank_method="cross_encoder"), SITES)
    assert plan is not None
    assert [step.task for step in plan.steps] == ["split", "score", "score", "merge_scores", "rank"]
    _split, one, two, merge, rank = plan.steps
    assert one.inputs == {"query": "q", "documents": list("abcdefgh")}
    assert two.inputs == {"query": "q", "documents": list("ijklmnop")}
    assert rank.refs == {"scored": merge.id}
    assert (rank.inputs["documents"], rank.inputs["top_n"]) == (MANY["documents"], 3)
    assert Plan.from_json(plan.to_json()) == plan


def test_an_embedder_embeds_the_query_once() -> None:
    plan = SPREAD_RERANK.plan(MANY, make_entry(rerank_method="cosine"), SITES)
    assert plan is not None
    assert [step.task for step in plan.steps] == ["split", "embed_part", "embed_part", "compare_parts", "rank"]
    asked = [step.inputs["request"] for step in plan.steps[1:3]]
    assert [request["input"] for request in asked if isinstance(request, dict)] == [
        ["q", *"abcdefgh"],
        [*"ijklmnop"],
    ]


def test_few_documents_are_not_cut() -> None:
    few: dict[str, Json] = {"query": "q", "documents": ["a", "b"]}
    assert SPREAD_RERANK.count(few) == 2
    assert SPREAD_RERANK.plan(few, make_entry(), SITES) is None
