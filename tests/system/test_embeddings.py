"""Embeddings through OpenAI's client, against a real model."""

import base64

import numpy as np
import pytest
from openai import OpenAI
from openai.types import CreateEmbeddingResponse

from tests.system.product import EMBED

TEXTS = ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "The tax form is due in April."]


def vectors(answer: CreateEmbeddingResponse) -> np.ndarray:
    return np.array([item.embedding for item in answer.data])


def test_near_sentences_are_nearer(client: OpenAI) -> None:
    answer = client.embeddings.create(model=EMBED, input=TEXTS)
    cat, kitten, tax = vectors(answer)
    assert cat @ kitten > 0.5 > cat @ tax
    assert np.linalg.norm(cat) == pytest.approx(1, abs=1e-4)
    assert answer.object == "list"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens > 3
    assert len(cat) == 384


def test_the_order_is_that_of_the_request(client: OpenAI) -> None:
    answer = client.embeddings.create(model=EMBED, input=TEXTS)
    turned = client.embeddings.create(model=EMBED, input=TEXTS[::-1])
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert np.allclose(vectors(answer), vectors(turned)[::-1], atol=1e-4)


def test_floats_and_base64_are_the_same_numbers(client: OpenAI) -> None:
    floats = client.embeddings.create(model=EMBED, input=TEXTS[0], encoding_format="float")
    packed = client.embeddings.create(model=EMBED, input=TEXTS[0], encoding_format="base64")
    text: object = packed.data[0].embedding
    assert isinstance(text, str), "asked for base64, the client gives what came"
    assert np.allclose(np.frombuffer(base64.b64decode(text), dtype="<f4"), vectors(floats)[0], atol=1e-6)


def test_fewer_dimensions(client: OpenAI) -> None:
    whole = vectors(client.embeddings.create(model=EMBED, input=TEXTS[0]))[0]
    short = vectors(client.embeddings.create(model=EMBED, input=TEXTS[0], dimensions=64))[0]
    assert len(short) == 64
    assert np.allclose(short, whole[:64] / np.linalg.norm(whole[:64]), atol=1e-4)


def test_text_as_tokens(client: OpenAI) -> None:
    assert len(client.embeddings.create(model=EMBED, input=[101, 4937, 102]).data) == 1


def test_a_large_batch(client: OpenAI) -> None:
    texts = [f"Sentence number {number}." for number in range(100)]
    answer = client.embeddings.create(model=EMBED, input=texts)
    assert [item.index for item in answer.data] == list(range(100))
    alone = vectors(client.embeddings.create(model=EMBED, input=texts[77]))[0]
    assert np.allclose(vectors(answer)[77], alone, atol=1e-3)
