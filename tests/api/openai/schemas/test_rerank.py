"""What a rerank request may hold."""

import pytest

from api.openai.schemas import rerank
from api.openai.schemas.shared import Body
from infra.errors import InvalidRequest


def test_documents_are_texts_or_objects() -> None:
    body: Body = {"model": "m", "query": "q", "documents": ["a", {"text": "b", "id": 5}], "top_n": 9}
    assert rerank.check({**body, "return_documents": True}).choices == 2
    assert rerank.texts(body) == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"query": ""}, "query"),
        ({"query": 5}, "query"),
        ({"documents": []}, "documents"),
        ({"documents": "a"}, "documents"),
        ({"documents": [5]}, "documents.0"),
        ({"documents": [{"txt": "a"}]}, "documents.0.text"),
        ({"documents": ["a"] * 2049}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"return_documents": 1}, "return_documents"),
        ({"topn": 1}, "topn"),
    ],
)
def test_what_is_wrong_is_named(fields: Body, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rerank.check({"model": "m", "query": "q", "documents": ["a"], **fields})
    assert caught.value.param == param
