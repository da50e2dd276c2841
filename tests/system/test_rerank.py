"""Rerank over HTTP: OpenAI's client has no method for it."""

from tests.system.product import CHAT, EMBED, Product

DOCUMENTS = ["The tax form is due in April.", "Paris is the capital of France.", "Cats sleep a lot."]
QUERY = "What is the capital of France?"


def test_the_relevant_document_comes_first(product: Product) -> None:
    answer = product.post("/v1/rerank", {"model": EMBED, "query": QUERY, "documents": DOCUMENTS})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    results = body["results"]
    assert results[0]["index"] == 1
    scores = [result["relevance_score"] for result in results]
    assert scores == sorted(scores, reverse=True)
    assert {result["index"] for result in results} == {0, 1, 2}
    assert body["model"] == EMBED


def test_a_cosine_is_called_a_cosine(product: Product) -> None:
    answer = product.post("/v1/rerank", {"model": EMBED, "query": QUERY, "documents": DOCUMENTS}).json()
    assert answer["method"] == "cosine"
    assert all(-1.001 <= result["relevance_score"] <= 1.001 for result in answer["results"])


def test_only_the_best(product: Product) -> None:
    body = {"model": EMBED, "query": QUERY, "documents": DOCUMENTS, "top_n": 1, "return_documents": True}
    results = product.post("/v1/rerank", body).json()["results"]
    assert len(results) == 1
    assert results[0]["document"] in (DOCUMENTS[1], {"text": DOCUMENTS[1]})


def test_a_chat_model_does_not_rerank(product: Product) -> None:
    answer = product.post("/v1/rerank", {"model": CHAT, "query": QUERY, "documents": DOCUMENTS})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "model"
    assert EMBED in str(product.get("/v1/models"))


def test_no_documents_is_an_error(product: Product) -> None:
    answer = product.post("/v1/rerank", {"model": EMBED, "query": QUERY, "documents": []})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "documents"
