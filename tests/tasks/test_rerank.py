"""Scores, cosines and the ranking, with an engine that is a server on a real socket."""

import json
import math
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.errors import EngineFailed
from infra.types import EngineId, Json, PoolId
from tasks import rerank
from tasks.rerank import embed_and_compare, merge_scores, rank, score
from tasks.types import TaskCall
from tests.fakes import make_entry
from workers.live import Engine
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket


class Far:
    """An engine that gives the answer it was told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answer: Any = {}
        self.asked: list[tuple[str, Any]] = []
        self.engine = Engine(EngineId("cpu/m"), make_entry(served_model="inner"), PoolId("cpu"), True, 1)
        self.transport = Transport()

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, await request.json()))
        return web.json_response(self.answer)

    def call(self, **inputs: Json) -> TaskCall:
        return TaskCall({"query": "q", "documents": ["a", "b"], **inputs}, self.transport, self.engine)


@pytest.fixture
async def far() -> AsyncIterator[Far]:
    made = Far()
    app = web.Application()
    app.router.add_post("/v1/{path:.*}", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.engine.base_url = str(server.make_url("/v1"))
        yield made
        await made.transport.close()


def embeddings(*vectors: list[float], order: list[int] | None = None) -> dict[str, Any]:
    indices = order or list(range(len(vectors)))
    return {
        "data": [{"index": index, "embedding": vectors[index]} for index in indices],
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }


async def test_a_cross_encoder_s_scores_in_the_documents_order(far: Far) -> None:
    far.answer = {
        "results": [{"index": 1, "relevance_score": 2.5}, {"index": 0, "relevance_score": -3}],
        "usage": {"prompt_tokens": 9, "total_tokens": 9},
    }
    result = await score(far.call())
    assert isinstance(result.value, dict)
    assert result.value["scores"] == [-3, 2.5]
    assert far.asked == [("/v1/rerank", {"query": "q", "documents": ["a", "b"], "model": "inner"})]


@pytest.mark.parametrize(
    "results",
    [
        None,
        "text",
        [],
        [{"index": 0, "relevance_score": 1}],
        [{"index": 0, "relevance_score": 1}, {"index": 2, "relevance_score": 1}],
        [{"index": 0, "relevance_score": 1}, {"index": -1, "relevance_score": 1}],
        [{"index": 0, "relevance_score": 1}, {"index": 1, "relevance_score": "high"}],
        [{"index": 0, "relevance_score": 1}, {"index": "1", "relevance_score": 1}],
        [{"index": 0, "relevance_score": 1}, 7],
    ],
)
async def test_scores_that_are_missing_are_the_engine_s_failure(far: Far, results: Json) -> None:
    far.answer = {"results": results}
    with pytest.raises(EngineFailed, match="cpu/m did not score every document"):
        await score(far.call())


async def test_cosines_whatever_the_length_and_order_of_the_vectors(far: Far) -> None:
    far.answer = embeddings([2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [1.0, 1.0], order=[3, 1, 0, 2])
    result = await embed_and_compare(far.call(documents=["a", "b", "c"]))
    assert isinstance(result.value, dict)
    assert result.value["scores"] == pytest.approx([0.0, -1.0, math.sqrt(0.5)])
    ((path, asked),) = far.asked
    assert (path, asked["input"], asked["encoding_format"]) == ("/v1/embeddings", ["q", "a", "b", "c"], "float")


async def test_a_vector_of_nothing_is_like_nothing(far: Far) -> None:
    far.answer = embeddings([1.0, 0.0], [0.0, 0.0], [1.0, 0.0])
    result = await embed_and_compare(far.call())
    assert isinstance(result.value, dict)
    assert result.value["scores"] == [0.0, 1.0]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"data": "x"},
        {"data": [7, 7, 7]},
        embeddings([1.0], [1.0]),
        embeddings([1.0], [1.0], []),
        embeddings([1.0, 0.0], [1.0], [1.0, 0.0]),
        embeddings([1.0], [1.0], [1.0], order=[0, 1, 1]),
        {"data": [{"index": index, "embedding": "aGVsbG8="} for index in range(3)]},
    ],
)
async def test_vectors_that_are_missing_or_differ_are_the_engine_s_failure(far: Far, answer: dict[str, Any]) -> None:
    far.answer = answer
    with pytest.raises(EngineFailed, match="cpu/m did not embed every document"):
        await embed_and_compare(far.call())


@pytest.mark.parametrize("value", [None, True, "1", [1.0]])
async def test_a_vector_of_other_things_than_numbers_is_the_engine_s_failure(far: Far, value: Any) -> None:
    far.answer = embeddings([1.0, 0.0], [value, 0.0], [1, 0])
    with pytest.raises(EngineFailed, match="cpu/m did not embed every document"):
        await embed_and_compare(far.call())


async def test_many_documents_do_not_hold_up_the_loop(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    compare = rerank._compared

    def look(answer: dict[str, Json], count: int) -> list[Json] | None:
        threads.append(threading.get_ident())
        return compare(answer, count)

    monkeypatch.setattr(rerank, "_compared", look)
    far.answer = embeddings([1.0, 0.0], [1, 0], [0.0, 2.5])
    result = await embed_and_compare(far.call())
    assert isinstance(result.value, dict)
    assert result.value["scores"] == [1.0, 0.0]
    assert threads != [threading.get_ident()]


async def ranked(scores: list[Json], **inputs: Json) -> dict[str, Any]:
    transport = Transport()
    try:
        result = await rank(
            TaskCall(
                {
                    "scored": {"scores": scores, "prompt_tokens": 4},
                    "documents": [f"text {index}" for index in range(len(scores))],
                    "top_n": None,
                    "return_documents": False,
                    "model": "m",
                    "method": "cosine",
                    **inputs,
                },
                transport,
            )
        )
    finally:
        await transport.close()
    assert isinstance(result.value, bytes)
    answer: dict[str, Any] = json.loads(result.value)
    return answer


async def test_the_best_comes_first_and_ties_keep_their_order() -> None:
    answer = await ranked([0.5, -1, 2, 0.5, 2.0])
    assert [result["index"] for result in answer["results"]] == [2, 4, 0, 3, 1]
    assert answer["results"][0] == {"index": 2, "relevance_score": 2}
    assert (answer["model"], answer["method"], answer["object"]) == ("m", "cosine", "list")
    assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


@pytest.mark.parametrize(("top_n", "indices"), [(1, [1]), (2, [1, 0]), (9, [1, 0, 2]), (None, [1, 0, 2])])
async def test_top_n(top_n: int | None, indices: list[int]) -> None:
    answer = await ranked([2, 3, 1], top_n=top_n)
    assert [result["index"] for result in answer["results"]] == indices


async def test_documents_come_back_where_they_are_asked_for() -> None:
    answer = await ranked([1, 2], return_documents=True)
    assert answer["results"][0]["document"] == {"text": "text 1"}


async def test_scores_of_parts_are_joined_in_order(far: Far) -> None:
    inputs: dict[str, Json] = {
        "split": [[0, 2], [2, 1]],
        "part-2": {"scores": [0.5], "prompt_tokens": 3},
        "part-1": {"scores": [2, -1], "prompt_tokens": 4},
    }
    result = await merge_scores(TaskCall(inputs, far.transport))
    assert result.value == {"scores": [2, -1, 0.5], "prompt_tokens": 7}
