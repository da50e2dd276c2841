"""Embeddings: the whole list in one step, for now on one engine."""

from flows.chat import GENERATE
from flows.plan import Plan, Step, StepId
from infra.types import Json
from workers.types import Capability, Demand, ModelEntry


def plan_embeddings(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None = None) -> Plan:
    """`request` is OpenAI's body, checked."""
    step = Step(
        StepId("embed"),
        GENERATE,
        {"path": "/embeddings", "request": request},
        demand=Demand(entry.name, Capability.EMBEDDINGS),
    )
    return Plan("embeddings", entry.name, (step,))
