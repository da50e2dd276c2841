"""Rerank: scores from a cross-encoder, or cosines of embeddings where the model is an embedder; then one sort.

Many documents are cut into parts, one an engine. An embedder's parts are of the list that the query leads, so that
the query is embedded once.
"""

from collections.abc import Sequence
from typing import Final

from flows.distribute import Share, Spread, merge_step, part_steps, shares
from flows.embeddings import EMBED_PART
from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.sites import Site
from workers.types import Capability, Demand, ModelEntry

_LEAST: Final = 16
"""Fewer documents are not split, unless the model says otherwise."""
SCORE = TaskName("score")
EMBED = TaskName("embed")
RANK = TaskName("rank")
MERGE_SCORES = TaskName("merge_scores")
COMPARE_PARTS = TaskName("compare_parts")


def plan_rerank(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None = None) -> Plan:
    """`request`: `{query, documents: [text], top_n, return_documents}`, checked, documents as plain text."""
    query, documents = request["query"], request["documents"]
    assert isinstance(documents, list)
    demand = Demand(entry.name, Capability.RERANK)
    task = EMBED if _method(entry) == "cosine" else SCORE
    inputs: dict[str, Json] = {"query": query, "documents": documents}
    scores = Step(StepId("score"), task, inputs, demand=demand, items=len(documents))
    return Plan("rerank", entry.name, (scores, _rank(request, entry, scores)))


def spread_rerank(request: dict[str, Json], entry: ModelEntry, sites: Sequence[Site]) -> Plan | None:
    """The same request in parts; None if it is better not split."""
    documents = request["documents"]
    assert isinstance(documents, list)
    given = shares(len(documents), entry, sites, _LEAST)
    if not given:
        return None
    if _method(entry) == "cosine":
        steps = part_steps(given, entry, Capability.RERANK, EMBED_PART, _texts(request["query"], documents, given))
        merge = merge_step(COMPARE_PARTS, {}, steps)
    else:
        own: list[dict[str, Json]] = [
            {"query": request["query"], "documents": _of(share, documents)} for share in given
        ]
        steps = part_steps(given, entry, Capability.RERANK, SCORE, own)
        merge = merge_step(MERGE_SCORES, {}, steps)
    return Plan("rerank", entry.name, (*steps, merge, _rank(request, entry, merge)))


def count_documents(request: dict[str, Json]) -> int:
    """How many documents a checked request has."""
    documents = request["documents"]
    assert isinstance(documents, list)
    return len(documents)


def _texts(query: Json, documents: list[Json], given: Sequence[Share]) -> list[dict[str, Json]]:
    """What each part embeds: its documents, the first part also the query, before them."""
    parts: list[dict[str, Json]] = []
    for share in given:
        texts = _of(share, documents)
        parts.append({"request": {"input": texts if share.first else [query, *texts], "encoding_format": "float"}})
    return parts


def _of(share: Share, documents: list[Json]) -> list[Json]:
    return documents[share.first : share.first + share.items]


def _method(entry: ModelEntry) -> str:
    return entry.rerank_method or "cross_encoder"


def _rank(request: dict[str, Json], entry: ModelEntry, scored: Step) -> Step:
    inputs: dict[str, Json] = {
        "model": entry.name,
        "method": _method(entry),
        "documents": request["documents"],
        "top_n": request.get("top_n"),
        "return_documents": request.get("return_documents", False),
    }
    return Step(StepId("rank"), RANK, inputs, {"scored": scored.id})


SPREAD_RERANK: Final = Spread(count_documents, _LEAST, spread_rerank)
