"""Chat and completions are one step each, at the engine's own path; the plan survives JSON."""

from flows.chat import plan_chat, plan_completions
from flows.plan import Plan
from infra.types import Json
from tests.fakes import make_entry
from workers.types import Capability

REQUEST: dict[str, Json] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def test_chat_is_one_step_with_its_conversation() -> None:
    plan = plan_chat(REQUEST, make_entry(), "session:7")
    (only,) = plan.steps
    assert (plan.flow, plan.model, only.task) == ("chat", "m", "generate")
    assert only.inputs == {"path": "/chat/completions", "request": REQUEST}
    assert only.demand is not None
    assert (only.demand.model, only.demand.capability, only.demand.affinity_key) == ("m", Capability.CHAT, "session:7")
    assert Plan.from_json(plan.to_json()) == plan


def test_completions_too() -> None:
    plan = plan_completions({"prompt": "once"}, make_entry(), None)
    (only,) = plan.steps
    assert (plan.flow, only.inputs["path"]) == ("completions", "/completions")
    assert only.demand is not None
    assert (only.demand.capability, only.demand.affinity_key) == (Capability.COMPLETIONS, None)
    assert Plan.from_json(plan.to_json()) == plan
