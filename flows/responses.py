"""OpenAI's Responses: one step, which asks the engine's chat for an answer or a summary, or how many tokens it would
read."""

from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.types import Capability, Demand, ModelEntry

RESPOND = TaskName("respond")
COUNT = TaskName("count_tokens")
COMPACT = TaskName("compact")


def plan_responses(request: dict[str, Json], entry: ModelEntry, affinity_key: str | None) -> Plan:
    """A response; `request` has the `request` for the chat, and what the `response` repeats of its own request."""
    demand = Demand(entry.name, Capability.CHAT, affinity_key)
    return Plan("responses", entry.name, (Step(StepId("respond"), RESPOND, request, {}, demand),))


def plan_input_tokens(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None) -> Plan:
    """The tokens of a response's input; `request` has the `request` that the engine is asked about."""
    step = Step(StepId("count"), COUNT, request, {}, Demand(entry.name, Capability.CHAT))
    return Plan("input_tokens", entry.name, (step,))


def plan_compact(request: dict[str, Json], entry: ModelEntry, affinity_key: str | None) -> Plan:
    """A conversation made shorter; `request` has the `request` for the chat, and the items that are `kept`."""
    demand = Demand(entry.name, Capability.CHAT, affinity_key)
    return Plan("compact", entry.name, (Step(StepId("compact"), COMPACT, request, {}, demand),))
