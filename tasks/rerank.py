"""Scores of documents against a query, and their ranking."""

import asyncio
import math
from operator import itemgetter, mul
from typing import cast

import orjson

from infra.errors import EngineFailed
from infra.types import Json
from tasks.generate import ask
from tasks.split import parts_of
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
    scores = await asyncio.to_thread(_compared, answer, len(texts))
    if scores is None:
        raise EngineFailed(f"{call.leased().id} did not embed every document")
    return _scored(scores, usage)


async def merge_scores(call: TaskCall) -> TaskResult:
    """The scores of all parts, in the order of the documents: `{scores, prompt_tokens}`."""
    scores: list[Json] = []
    tokens = 0
    for part in parts_of(call):
        own, used = part["scores"], part["prompt_tokens"]
        assert isinstance(own, list)
        assert isinstance(used, int)
        scores += own
        tokens += used
    return TaskResult({"scores": scores, "prompt_tokens": tokens})


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


_NUMBERS = frozenset({int, float})


def _compared(answer: dict[str, Json], count: int) -> list[Json] | None:
    """The cosine of the first of `count` embeddings with each other one; None unless all are there, of one length.

    A thousand documents are tens of milliseconds of computing: run it in a thread.
    """
    vectors = _vectors(answer, count)
    return None if vectors is None else cosines(vectors[0], vectors[1:])


def _vectors(answer: dict[str, Json], count: int) -> list[list[float]] | None:
    """The embeddings in the order of their `index`; None unless all are there, of one length."""
    vectors: list[list[float] | None] = [None] * count
    data = answer.get("data")
    for item in data if isinstance(data, list) else []:
        if not isinstance(item, dict):
            return None
        index, vector = item.get("index"), item.get("embedding")
        if isinstance(index, int) and 0 <= index < count and isinstance(vector, list):
            vectors[index] = cast(list[float], vector) if _NUMBERS.issuperset(map(type, vector)) else None
    whole = [vector for vector in vectors if vector]
    return whole if len(whole) == count and len({len(vector) for vector in whole}) == 1 else None


def cosines(query: list[float], vectors: list[list[float]]) -> list[Json]:
    """The cosine of the query with each vector, all of one length; 0 for vectors of nothing."""
    query_norm = math.hypot(*query)
    norms = (query_norm * math.hypot(*vector) for vector in vectors)
    return [sum(map(mul, query, vector)) / norm if norm else 0.0 for vector, norm in zip(vectors, norms, strict=True)]
