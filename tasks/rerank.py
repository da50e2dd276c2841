"""Scores of documents against a query, and their ranking."""

import math
from operator import itemgetter

import orjson

from infra.errors import EngineFailed
from infra.types import Json
from tasks.generate import ask
from tasks.types import TaskCall, TaskResult, Usage


async def score(call: TaskCall) -> TaskResult:
    """Scores from a cross-encoder: `{scores: [one a document, in their order], prompt_tokens}`."""
    documents = call.inputs["documents"]
    assert isinstance(documents, list)
    answer, usage = await ask(call, "/rerank", {"query": call.inputs["query"], "documents": documents})
    results = answer.get("results")
    scores: list[Json] = [None] * len(documents)
    for result in results if isinstance(results, list) else []:
        if isinstance(result, dict) and isinstance(index := result.get("index"), int) and 0 <= index < len(scores):
            scores[index] = result.get("relevance_score")
    if not all(isinstance(value, int | float) for value in scores):
        raise EngineFailed(f"{call.leased().id} did not score every document")
    return _scored(scores, usage)


async def embed_and_compare(call: TaskCall) -> TaskResult:
    """Cosines of the query's embedding with each document's: `{scores: [-1 … 1], prompt_tokens}`."""
    documents = call.inputs["documents"]
    assert isinstance(documents, list)
    texts: list[Json] = [call.inputs["query"], *documents]
    answer, usage = await ask(call, "/embeddings", {"input": texts, "encoding_format": "float"})
    vectors = _vectors(answer, len(texts))
    if vectors is None:
        raise EngineFailed(f"{call.leased().id} did not embed every document")
    query = vectors[0]
    return _scored([_cosine(query, vector) for vector in vectors[1:]], usage)


async def rank(call: TaskCall) -> TaskResult:
    """Sort by score, best first, cut at `top_n`: the answer's JSON text."""
    scored, documents = call.inputs["scored"], call.inputs["documents"]
    assert isinstance(scored, dict)
    assert isinstance(scored["scores"], list)
    assert isinstance(documents, list)
    order = sorted(enumerate(scored["scores"]), key=itemgetter(1), reverse=True)
    top_n = call.inputs["top_n"]
    if isinstance(top_n, int):
        order = order[:top_n]
    results: list[Json] = []
    for index, value in order:
        result: dict[str, Json] = {"index": index, "relevance_score": value}
        if call.inputs["return_documents"]:
            result["document"] = {"text": documents[index]}
        results.append(result)
    tokens = scored["prompt_tokens"]
    body = {
        "object": "list",
        "model": call.inputs["model"],
        "method": call.inputs["method"],
        "results": results,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return TaskResult(orjson.dumps(body))


def _scored(scores: list[Json], usage: Usage | None) -> TaskResult:
    return TaskResult({"scores": scores, "prompt_tokens": usage.prompt_tokens if usage else 0}, usage)


def _vectors(answer: dict[str, Json], count: int) -> list[list[float]] | None:
    """The embeddings in the order of their `index`; None unless all are there, of one length."""
    vectors: list[list[float] | None] = [None] * count
    data = answer.get("data")
    for item in data if isinstance(data, list) else []:
        if not isinstance(item, dict):
            return None
        index, vector = item.get("index"), item.get("embedding")
        if isinstance(index, int) and 0 <= index < count and isinstance(vector, list):
            vectors[index] = [float(value) for value in vector if isinstance(value, int | float)]
    whole = [vector for vector in vectors if vector]
    return whole if len(whole) == count and len({len(vector) for vector in whole}) == 1 else None


def _cosine(left: list[float], right: list[float]) -> float:
    norm = math.hypot(*left) * math.hypot(*right)
    return sum(a * b for a, b in zip(left, right, strict=True)) / norm if norm else 0.0
