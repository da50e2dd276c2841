"""Rerank scores where the model is and ranks at the front; the plan survives JSON."""

import pytest

from flows.plan import Plan
from flows.rerank import plan_rerank
from infra.types import Json
from tests.fakes import make_entry
from workers.types import Capability

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
