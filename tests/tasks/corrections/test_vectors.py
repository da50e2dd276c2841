"""Shorter embeddings."""

import math
from array import array
from base64 import b64decode

import pytest

from infra.errors import EngineFailed, InvalidRequest
from tasks.corrections.types import EMBEDDINGS, Body, objects
from tasks.corrections.vectors import response, shortened
from tests.tasks.corrections.live import Live
from tests.tiny_gguf import EMBEDDING_DIMENSIONS


def vector(answer: Body) -> list[float]:
    embedding = objects(answer["data"])[0]["embedding"]
    assert isinstance(embedding, list)
    return [float(str(value)) for value in embedding]


def test_dimensions_are_kept_to(embedder: Live) -> None:
    body: Body = {"model": "m", "input": ["one", "two"]}
    whole = vector(embedder.bare(EMBEDDINGS, {**body, "dimensions": 8}))
    assert len(whole) == EMBEDDING_DIMENSIONS
    answer = embedder.mended(EMBEDDINGS, {**body, "dimensions": 8})
    short = vector(answer)
    assert math.isclose(math.hypot(*short), 1, rel_tol=1e-6)
    scale = math.hypot(*whole[:8])
    assert all(math.isclose(got, value / scale, abs_tol=1e-6) for got, value in zip(short, whole[:8], strict=True))
    assert [item["index"] for item in objects(answer["data"])] == [0, 1]
    assert [item["object"] for item in objects(answer["data"])] == ["embedding"] * 2
    coded = embedder.mended(EMBEDDINGS, {**body, "dimensions": 8, "encoding_format": "base64"})
    assert array("f", b64decode(str(objects(coded["data"])[0]["embedding"]))).tolist() == short


def test_more_dimensions_than_there_are_are_refused(embedder: Live) -> None:
    with pytest.raises(InvalidRequest, match=f"have {EMBEDDING_DIMENSIONS} dimensions") as caught:
        embedder.mended(EMBEDDINGS, {"input": "one", "dimensions": EMBEDDING_DIMENSIONS + 1})
    assert caught.value.param == "dimensions"


def test_zero_stays_zero() -> None:
    assert shortened(array("f", [0, 0, 1]), 2).tolist() == [0, 0]


@pytest.mark.parametrize("embedding", [None, "###", 5])
def test_what_cannot_be_read_is_the_engines_fault(embedding: str | int | None) -> None:
    with pytest.raises(EngineFailed):
        response({"data": [{"index": 0, "embedding": embedding}]}, {"dimensions": 1})
