"""Rerank: scores from a cross-encoder, or cosines of embeddings where the model is an embedder; then one sort."""

from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.types import Capability, Demand, ModelEntry

SCORE = TaskName("score")
EMBED = TaskName("embed")
RANK = TaskName("rank")


def plan_rerank(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None = None) -> Plan:
    """`request`: `{query, documents: [text], top_n, return_documents}`, checked, documents as plain text."""
    query, documents = request["query"], request["documents"]
    assert isinstance(documents, list)
    method = entry.rerank_method or "cross_encoder"
    demand = Demand(entry.name, Capability.RERANK)
    if method == "cosine":
        scores = Step(StepId("score"), EMBED, {"query": query, "documents": documents}, demand=demand)
    else:
        scores = Step(StepId("score"), SCORE, {"query": query, "documents": documents}, demand=demand)
    rank = Step(
        StepId("rank"),
        RANK,
        {
            "model": entry.name,
            "method": method,
            "documents": documents,
            "top_n": request.get("top_n"),
            "return_documents": request.get("return_documents", False),
        },
        {"scored": scores.id},
    )
    return Plan("rerank", entry.name, (scores, rank))
