"""One request over two engines with a real model: the same answer, in order, whatever happens to an engine."""

import os
import signal
import threading
from collections.abc import Iterator

import httpx2
import numpy as np
import pytest
from openai.types import CreateEmbeddingResponse

from tests.system.conftest import MakeProduct
from tests.system.engines import busy, engines_of, pids_of, two_cards
from tests.system.product import EMBED, Product, eventually
from workers.packaged.catalogue import PACKAGED, served_path

WORDS = ["salt", "lamp", "letter", "river", "caravan", "winter", "copper", "garden", "window", "thunder"]
TEXTS = [f"{WORDS[n % 10]} and {WORDS[n // 10 % 10]}, said traveller {n} of the {WORDS[n * 7 % 10]}" for n in range(96)]
MODEL = (
    '[[model]]\nname = "{name}"\npath = "{path}"\ncapabilities = ["embeddings", "rerank"]\nrerank_method = "cosine"\n'
)


@pytest.fixture(scope="module")
def two(make_product: MakeProduct) -> Iterator[Product]:
    """Two cards by hand. `spread` and `hedged` are on both, `single` on one."""
    file = next(each for each in PACKAGED if each.name == EMBED)
    served = make_product(settings={"LLAMA__THREADS": "1"})
    path = served_path(file, served.home)
    rows = MODEL.format(name="spread", path=path) + "distribute = { min_items = 4 }\n"
    rows += MODEL.format(name="hedged", path=path) + "distribute = { min_items = 4, hedge = true }\n"
    rows += MODEL.format(name="single", path=path) + "distribute = { enabled = false }\n"
    two_cards(served, rows)
    for model in ("spread", "hedged"):
        served.client().embeddings.create(model=model, input=TEXTS)  # so many that it is loaded on both
        assert len(engines_of(served, model)) == 2, served.log
    yield served
    assert served.stop() == 0


def vectors(served: Product, model: str, texts: list[str]) -> np.ndarray:
    answer = served.client().embeddings.create(model=model, input=texts)
    assert [item.index for item in answer.data] == list(range(len(texts)))
    return np.array([item.embedding for item in answer.data])


def test_the_vectors_are_those_of_one_engine_in_order(two: Product) -> None:
    spread, single = (two.client().embeddings.create(model=model, input=TEXTS) for model in ("spread", "single"))
    assert spread.usage == single.usage
    assert np.allclose(
        np.array([item.embedding for item in spread.data]),
        np.array([item.embedding for item in single.data]),
        atol=1e-4,
    )
    short = two.post("/v1/embeddings", {"model": "spread", "input": TEXTS, "dimensions": 8}).json()
    assert [len(item["embedding"]) for item in short["data"]] == [8] * len(TEXTS)


def test_documents_are_ranked_as_by_one_engine(two: Product) -> None:
    body = {"query": "a letter about the winter", "documents": TEXTS, "top_n": 7, "return_documents": True}
    spread, single = (two.post("/v1/rerank", body | {"model": model}).json() for model in ("spread", "single"))
    assert [each["index"] for each in spread["results"]] == [each["index"] for each in single["results"]]
    assert [each["document"] for each in spread["results"]] == [each["document"] for each in single["results"]]
    assert spread["usage"] == single["usage"]


def test_the_command_line_shows_the_parts_before_and_the_run_after(two: Product) -> None:
    request = f'{{"model": "spread", "input": ["{TEXTS[0]}", "b", "c", "d"]}}'
    told = two.told("plan", "--endpoint", "embeddings", "--request", "-", stdin=request)
    for word in ('"split"', '"part-1"', '"part-2"', '"merge"', "this part is for cpu-a", "this part is for cpu-b"):
        assert word in told, told


def test_an_engine_killed_in_the_middle(two: Product) -> None:
    """The answer is whole, in order, and equal to the undisturbed one."""
    undisturbed = vectors(two, "spread", TEXTS)
    many = TEXTS * 4
    pids = pids_of(two, "spread")
    got: list[np.ndarray] = []
    asking = threading.Thread(target=lambda: got.append(vectors(two, "spread", many)))
    asking.start()
    eventually(
        lambda: busy(two, "spread") == {"cpu-a", "cpu-b"},
        20,
        what=lambda: str(engines_of(two, "spread")),
        pause_s=0.005,
    )
    os.kill(pids["cpu-b"], signal.SIGKILL)
    asking.join(60)
    assert got, two.log
    assert np.allclose(got[0], np.tile(undisturbed, (4, 1)), atol=1e-4)
    eventually(
        lambda: [engine["state"] for engine in engines_of(two, "spread")] == ["ready", "ready"],
        20,
        what=lambda: str(engines_of(two, "spread")),
    )


def test_an_engine_that_stands_still_is_overtaken(two: Product) -> None:
    """The other one gives the answer; the late try is cancelled, its slot is free, and it counts for nothing."""
    many = TEXTS * 2
    undisturbed = two.client().embeddings.create(model="hedged", input=many)
    pids, before = pids_of(two, "hedged"), prompt_tokens(two, "hedged")
    got: list[CreateEmbeddingResponse] = []
    asking = threading.Thread(target=lambda: got.append(two.client().embeddings.create(model="hedged", input=many)))
    asking.start()
    eventually(
        lambda: busy(two, "hedged") == {"cpu-a", "cpu-b"},
        20,
        what=lambda: str(engines_of(two, "hedged")),
        pause_s=0.005,
    )
    os.kill(pids["cpu-b"], signal.SIGSTOP)
    try:
        asking.join(60)
        assert got, two.log
        eventually(lambda: not busy(two, "hedged"), 5, what=lambda: str(engines_of(two, "hedged")))
    finally:
        os.kill(pids["cpu-b"], signal.SIGCONT)
    first, second = (np.array([item.embedding for item in answer.data]) for answer in (undisturbed, got[0]))
    assert np.allclose(first, second, atol=1e-4)
    assert got[0].usage == undisturbed.usage
    assert prompt_tokens(two, "hedged") - before == undisturbed.usage.prompt_tokens
    assert pids_of(two, "hedged") == pids
    assert np.allclose(vectors(two, "hedged", many), first, atol=1e-4), "the one that stood still works again"


def prompt_tokens(served: Product, model: str) -> float:
    """What has been counted for the model."""
    page = httpx2.get(f"{served.url}/metrics", headers=served.headers(), timeout=10).text
    return sum(
        float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith("coderai_tokens_total{") and f'model="{model}"' in line and 'direction="prompt"' in line
    )
