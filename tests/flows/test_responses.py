"""A response is one step, which asks the engine's chat; the plan survives JSON."""

from flows.plan import Plan
from flows.responses import plan_compact, plan_input_tokens, plan_responses
from infra.types import Json
from tests.fakes import make_entry
from workers.types import Capability


def test_a_response_is_one_step_with_its_conversation() -> None:
    request: dict[str, Json] = {"request": {"model": "m", "messages": []}, "response": {"store": True}}
    plan = plan_responses(request, make_entry(), "session:7")
    (only,) = plan.steps
    assert (plan.flow, plan.model, only.task, only.inputs) == ("responses", "m", "respond", request)
    assert only.demand is not None
    assert (only.demand.capability, only.demand.affinity_key) == (Capability.CHAT, "session:7")
    assert Plan.from_json(plan.to_json()) == plan


def test_a_count_is_one_step() -> None:
    request: dict[str, Json] = {"request": {"model": "m", "messages": []}}
    plan = plan_input_tokens(request, make_entry(), None)
    (only,) = plan.steps
    assert (plan.flow, only.task, only.inputs) == ("input_tokens", "count_tokens", request)
    assert Plan.from_json(plan.to_json()) == plan


def test_a_compaction_is_one_step_where_its_conversation_is() -> None:
    request: dict[str, Json] = {"request": {"model": "m", "messages": []}, "kept": [{"type": "message"}]}
    plan = plan_compact(request, make_entry(), "session:7")
    (only,) = plan.steps
    assert (plan.flow, plan.model, only.task, only.inputs) == ("compact", "m", "compact", request)
    assert only.demand is not None
    assert (only.demand.capability, only.demand.affinity_key) == (Capability.CHAT, "session:7")
    assert Plan.from_json(plan.to_json()) == plan
