"""One request over two engines with a real model: the same answer, in order, whatever happens to an engine."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.system.conftest import MakeProduct
from tests.system.product import EMBED, Product, eventually
from workers.packaged.catalogue import PACKAGED, served_path

WORDS = ["salt", "lamp", "letter", "river", "caravan", "winter", "copper", "garden", "window", "thunder"]
TEXTS = [f"{WORDS[n % 10]} and {WORDS[n // 10 % 10]}, said traveller {n} of the {WORDS[n * 7 % 10]}" for n in range(96)]
CARD = '[[cards.engine_specs]]\nname = "{name}"\nbackend = "cpu"\nmemory_mib = 4096\n'
MODEL = (
    '[[model]]\nname = "{name}"\npath = "{path}"\ncapabilities = ["embeddings", "rerank"]\nrerank_method = "cosine"\n'
)


@pytest.fixture(scope="module")
def two(make_product: MakeProduct) -> Iterator[Product]:
    """Two cards by hand. `spread` is on both, `single` on one."""
    file = next(each for each in PACKAGED if each.name == EMBED)
    served = make_product(settings={"LLAMA__THREADS": "1"})
    path = served_path(file, served.home)
    rows = "".join(CARD.format(name=name) for name in ("cpu-a", "cpu-b"))
    rows += MODEL.format(name="spread", path=path) + "distribute = { min_items = 4 }\n"
    rows += MODEL.format(name="single", path=path) + "distribute = { enabled = false }\n"
    served.home.joinpath("coderai.toml").write_text(rows)
    served.start()
    served.client().embeddings.create(model="spread", input=TEXTS)  # so many that it is loaded on both
    assert len(engines_of(served, "spread")) == 2, served.log
    yield served
    assert served.stop() == 0


def engines_of(served: Product, model: str) -> list[dict[str, Any]]:
    return [each for each in served.get("/admin/api/engines")["engines"] if each["model"] == model]


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
    many = TEXTS * 12
    pids = {
        pool: next(
            pid for pid, line in two.processes().items() if '"name":"spread"' in line and f'"pool":"{pool}"' in line
        )
        for pool in ("cpu-a", "cpu-b")
    }
    got: list[np.ndarray] = []
    asking = threading.Thread(target=lambda: got.append(vectors(two, "spread", many)))
    asking.start()
    eventually(
        lambda: all(engine["in_flight"] for engine in engines_of(two, "spread")),
        20,
        what=lambda: str(engines_of(two, "spread")),
        pause_s=0.005,
    )
    os.kill(pids["cpu-b"], signal.SIGKILL)
    asking.join(60)
    assert got, two.log
    assert np.allclose(got[0], np.tile(undisturbed, (12, 1)), atol=1e-4)
    eventually(
        lambda: [engine["state"] for engine in engines_of(two, "spread")] == ["ready", "ready"],
        20,
        what=lambda: str(engines_of(two, "spread")),
    )
