"""Embeddings are one step with the whole list; the plan survives JSON."""

from flows.embeddings import plan_embeddings
from flows.plan import Plan
from infra.types import Json
from tests.fakes import make_entry
from workers.types import Capability


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
