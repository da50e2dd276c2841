"""OpenAI's Responses: one step, which asks the engine's chat."""

from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.types import Capability, Demand, ModelEntry

RESPOND = TaskName("respond")


def plan_responses(request: dict[str, Json], entry: ModelEntry, affinity_key: str | None) -> Plan:
    """A response; `request` has the `request` for the chat, and what the `response` repeats of its own request."""
    demand = Demand(entry.name, Capability.CHAT, affinity_key)
    return Plan("responses", entry.name, (Step(StepId("respond"), RESPOND, request, {}, demand),))
