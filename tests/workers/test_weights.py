"""What is said of a weights file: facts, capabilities, memory, and the refusals."""

import os
import struct
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.errors import InvalidRequest
from tests.tiny_gguf import write_tiny_embedder, write_tiny_llama, write_tiny_reranker
from workers.types import Capability, ModelFormat, Pooling
from workers.weights import cache_bytes, capabilities_of, memory_bytes, read_weights


def write_split(folder: Path, parts: int = 3) -> list[Path]:
    """A model cut in parts as llama.cpp's gguf-split does: all keys in the first, tensors spread."""
    paths = [folder / f"m-{part:05}-of-{parts:05}.gguf" for part in range(1, parts + 1)]
    for number, path in enumerate(paths):
        writer = gguf.GGUFWriter(path, "llama")
        if number == 0:
            writer.add_block_count(2)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", parts)
        writer.add_tensor(f"blk.{number}.attn_q.weight", np.zeros((4, 32), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def write_model(path: Path, architecture: str, **keys: int | list[int] | str) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        if isinstance(value, list):
            writer.add_array(key.replace("__", "."), value)
        elif isinstance(value, str):
            writer.add_string(key.replace("__", "."), value)
        else:
            writer.add_uint32(key.replace("__", "."), value)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InvalidRequest) as caught:
        capabilities_of(read_weights(path))
    return caught.value.message


def test_facts_of_a_chat_model(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "model.bin")  # the name says nothing
    facts = read_weights(path)
    assert facts.format is ModelFormat.GGUF
    assert facts.architecture == "llama"
    assert facts.name == "tiny-llama"
    assert facts.quantisation == "F16"
    assert facts.context_tokens == 2048
    assert facts.embedding_dimensions == 64
    assert (facts.block_count, facts.kv_heads, facts.key_width, facts.value_width) == (2, (2, 2), 16, 16)
    assert facts.has_chat_template
    assert facts.causal
    assert facts.pooling is None
    assert facts.total_bytes == path.stat().st_size
    assert capabilities_of(facts) == (Capability.CHAT, Capability.COMPLETIONS)


def test_without_a_template_there_is_no_chat(tmp_path: Path) -> None:
    facts = read_weights(write_tiny_llama(tmp_path / "m.gguf", chat_template=None))
    assert capabilities_of(facts) == (Capability.COMPLETIONS,)


def test_embedder_and_reranker(tmp_path: Path) -> None:
    embedder = read_weights(write_tiny_embedder(tmp_path / "e.gguf"))
    assert embedder.pooling is Pooling.MEAN
    assert capabilities_of(embedder) == (Capability.EMBEDDINGS,)
    assert cache_bytes(embedder, 512, 4) == 0
    reranker = read_weights(write_tiny_reranker(tmp_path / "r.gguf"))
    assert reranker.pooling is Pooling.RANK
    assert capabilities_of(reranker) == (Capability.RERANK,)


@pytest.mark.parametrize(
    ("architecture", "keys", "expected"),
    [
        ("bert", {}, (Capability.EMBEDDINGS,)),
        ("qwen3", {"qwen3__pooling_type": 3, "tokenizer__chat_template": "x"}, (Capability.EMBEDDINGS,)),
        (
            "qwen3",
            {"qwen3__pooling_type": 0, "tokenizer__chat_template": "x"},
            (Capability.CHAT, Capability.COMPLETIONS),
        ),
        ("qwen3", {"qwen3__pooling_type": 99}, (Capability.COMPLETIONS,)),
        ("bert", {"bert__pooling_type": 4}, (Capability.RERANK,)),
    ],
)
def test_capabilities(
    tmp_path: Path, architecture: str, keys: dict[str, int | list[int] | str], expected: tuple[Capability, ...]
) -> None:
    assert capabilities_of(read_weights(write_model(tmp_path / "m.gguf", architecture, **keys))) == expected


def test_memory_counts_each_layers_heads(tmp_path: Path) -> None:
    path = write_model(
        tmp_path / "m.gguf", "lfm2", lfm2__block_count=4, lfm2__embedding_length=64, lfm2__attention__head_count=4,
        lfm2__attention__head_count_kv=[0, 2, 0, 2],
    )  # fmt: skip
    facts = read_weights(path)
    assert facts.kv_heads == (0, 2, 0, 2)
    per_token = 4 * (16 + 16) * 2  # four heads in all, keys and values of 16 half floats
    assert cache_bytes(facts, 100, 3) == per_token * 300
    more = memory_bytes(facts, 200, 3) - memory_bytes(facts, 100, 3)
    assert more == per_token * 300
    assert memory_bytes(facts, 0, 1) > path.stat().st_size


def test_nonsense_sizes_do_not_make_nonsense_memory(tmp_path: Path) -> None:
    keys: dict[str, int | list[int] | str] = {"llama__block_count": (1 << 32) - 1, "llama__attention__head_count": 0}
    facts = read_weights(write_model(tmp_path / "m.gguf", "llama", **keys))
    assert len(facts.kv_heads) == 10_000
    assert facts.key_width == 0


def test_a_split_model_is_all_its_parts(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    facts = read_weights(paths[0])
    assert facts.split_count == 3
    assert facts.total_bytes == sum(path.stat().st_size for path in paths)
    assert "name its first" in refusal(paths[1])


def test_a_split_model_with_a_bad_part_is_refused(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    whole = paths[2].read_bytes()
    paths[2].write_bytes(whole[:-100])
    assert "bytes are missing" in refusal(paths[0])
    paths[2].write_bytes(paths[1].read_bytes())
    assert "not part 3 of 3" in refusal(paths[0])
    paths[2].unlink()
    assert f"1 of 3 parts of {paths[0]} are missing, first {paths[2].name}" in refusal(paths[0])
    renamed = paths[0].rename(tmp_path / "other.gguf")
    assert "its name must end in -00001-of-00003.gguf" in refusal(renamed)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04" + bytes(60), "can run code"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"\x80\x05\x95" + bytes(60), "pickle"),
        (
            struct.pack("<Q", 20) + b'{"a":{"dtype":"F32"}}' + bytes(9),
            "is safetensors; name the folder that it lies in",
        ),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html>", "web page"),
        (b"tjgg" + bytes(60), "before GGUF"),
        (b"hello", "of no known format"),
    ],
)
def test_other_formats_are_named(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    assert words in refusal(path)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    adapter: dict[str, int | list[int] | str] = {"general__type": "adapter"}
    assert "'adapter'" in refusal(write_model(tmp_path / "a.gguf", "llama", **adapter))
    assert "mmproj" in refusal(write_model(tmp_path / "b.gguf", "clip"))
    assert "encoder-decoder" in refusal(write_model(tmp_path / "c.gguf", "t5"))
    empty = tmp_path / "d.gguf"
    empty.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    assert "general.architecture" in refusal(empty)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf")
    path.chmod(0)
    assert "cannot be read" in refusal(path)


def test_reading_weights_imports_no_heavy_library() -> None:
    import subprocess

    code = "import sys, workers.weights; sys.exit(bool({'numpy', 'gguf'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


MUTATIONS = st.lists(
    st.tuples(
        st.integers(0, 12_000),
        st.one_of(
            st.binary(min_size=1, max_size=8),
            st.sampled_from([0, 1, (1 << 31) - 1, 1 << 32, 1 << 60, (1 << 64) - 1]).map(lambda n: struct.pack("<Q", n)),
            st.integers(0, 14).map(lambda n: struct.pack("<I", n)),
        ),
    ),
    max_size=6,
)


@given(mutations=MUTATIONS, cut=st.one_of(st.none(), st.integers(0, 300_000)))
@settings(max_examples=300, deadline=2000)
def test_no_mutation_of_a_real_file_does_more_than_be_refused(
    tiny: Path, mutations: list[tuple[int, bytes]], cut: int | None
) -> None:
    data = bytearray(tiny.read_bytes())
    for offset, piece in mutations:
        data[offset : offset + len(piece)] = piece
    changed = tiny.with_name("changed.gguf")
    changed.write_bytes(data[:cut])
    try:
        facts = read_weights(changed)
        known = capabilities_of(facts)
    except InvalidRequest as refused:
        message = refused.message
    else:
        message = ""
        assert known
        assert memory_bytes(facts, 8192, 4) >= facts.total_bytes
    assert len(message) < 1000
