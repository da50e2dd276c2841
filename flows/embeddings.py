"""Embeddings: the whole list in one step, or cut into parts, one an engine, and merged in order."""

from collections.abc import Sequence
from typing import Final

from flows.chat import GENERATE
from flows.distribute import Spread, merge_step, part_steps, shares
from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.sites import Site
from workers.types import Capability, Demand, ModelEntry

_LEAST: Final = 16
"""A list of fewer inputs is not split, unless the model says otherwise."""
EMBED_PART: Final = TaskName("embed_part")
MERGE: Final = TaskName("merge_embeddings")


def plan_embeddings(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None = None) -> Plan:
    """`request` is OpenAI's body, checked."""
    step = Step(
        StepId("embed"),
        GENERATE,
        {"path": "/embeddings", "request": request},
        demand=Demand(entry.name, Capability.EMBEDDINGS),
        items=count_inputs(request),
    )
    return Plan("embeddings", entry.name, (step,))


def spread_embeddings(request: dict[str, Json], entry: ModelEntry, sites: Sequence[Site]) -> Plan | None:
    """The same request in parts; None if it is better not split."""
    inputs = request["input"]
    given = shares(count_inputs(request), entry, sites, _LEAST)
    if not given:
        return None
    assert isinstance(inputs, list)
    own: list[dict[str, Json]] = [
        {"request": {**request, "input": inputs[share.first : share.first + share.items]}} for share in given
    ]
    steps = part_steps(given, entry, Capability.EMBEDDINGS, EMBED_PART, own)
    merged: dict[str, Json] = {"model": entry.name, "encoding_format": request.get("encoding_format")}
    return Plan("embeddings", entry.name, (*steps, merge_step(MERGE, merged, steps)))


def count_inputs(request: dict[str, Json]) -> int:
    """How many vectors a checked request asks for: a text, or a list of tokens, is one input."""
    given = request["input"]
    return len(given) if isinstance(given, list) and not isinstance(given[0], int) else 1


SPREAD_EMBEDDINGS: Final = Spread(count_inputs, _LEAST, spread_embeddings)
