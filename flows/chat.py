"""Chat and completions: one step, whose bytes pass through as they come."""

from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.types import Capability, Demand, ModelEntry

GENERATE = TaskName("generate")


def plan_chat(request: dict[str, Json], entry: ModelEntry, affinity_key: str | None) -> Plan:
    """A chat completion; `request` is OpenAI's body, checked."""
    return _plan("chat", Capability.CHAT, "/chat/completions", request, entry, affinity_key)


def plan_completions(request: dict[str, Json], entry: ModelEntry, affinity_key: str | None) -> Plan:
    """A text completion; `request` is OpenAI's body, checked."""
    return _plan("completions", Capability.COMPLETIONS, "/completions", request, entry, affinity_key)


def _plan(
    flow: str,
    capability: Capability,
    path: str,
    request: dict[str, Json],
    entry: ModelEntry,
    affinity_key: str | None,
) -> Plan:
    demand = Demand(entry.name, capability, affinity_key)
    return Plan(flow, entry.name, (Step(StepId("generate"), GENERATE, {"path": path, "request": request}, {}, demand),))
