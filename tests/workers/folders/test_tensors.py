"""Which safetensors of a folder are loaded, and which headers are sound."""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import InvalidRequest
from infra.types import Json
from tests.model_folders import write_json, write_tensors
from workers.folders.files import Folder
from workers.folders.tensors import WeightsName, loaded_files, read_header, size_of, weights_name

TENSOR: dict[str, Json] = {"dtype": "F16", "shape": [2, 2], "data_offsets": [0, 8]}
GOOD: dict[str, Json] = {"a": TENSOR}


def raw(header: object, data_bytes: int = 8, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + bytes(data_bytes)


def test_a_header_s_tensors(tmp_path: Path) -> None:
    path = write_tensors(tmp_path / "a.safetensors", "one", "two")
    assert read_header(path) == {"one", "two"}
    path.write_bytes(raw({**GOOD, "__metadata__": {"format": "pt"}}))
    assert read_header(path) == {"a"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not the length of a header"),
        (b"\x80\x02" + bytes(100), "not the length of a header"),
        (raw(GOOD, length=1 << 60), "not the length of a header"),
        (raw(b"{" * 20), "no JSON"),
        (raw([1]), "no object of tensors"),
        (raw({}), "its header tells of"),
        (raw(GOOD, 7), "has 79 bytes, its header tells of 80"),
        (raw(GOOD, 9), "its header tells of"),
        (raw({"a": 7}), "cannot be read"),
        (raw({"a": {**TENSOR, "dtype": "F7"}}), "cannot be read"),
        (raw({"a": {**TENSOR, "shape": [-1]}}), "cannot be read"),
        (raw({"a": {**TENSOR, "shape": [1 << 40, 1 << 40]}}), "other bytes than its shape"),
        (raw({"a": {**TENSOR, "data_offsets": [8, 0]}}), "other bytes than its shape"),
        (raw({**GOOD, "b": TENSOR}), "leave gaps, or lie over each other"),
        (raw({"a": {**TENSOR, "data_offsets": [4, 12]}}, 12), "leave gaps"),
    ],
)
def test_a_broken_header_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=words):
        read_header(path)


@given(st.binary(max_size=200), st.integers(0, 300))
def test_no_bytes_do_harm(tmp_path_factory: pytest.TempPathFactory, content: bytes, length: int) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.safetensors"
    path.write_bytes(struct.pack("<Q", length) + content)
    with pytest.raises(InvalidRequest):
        read_header(path)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("model.safetensors", WeightsName("model", None, False, False)),
        ("model.fp16.safetensors", WeightsName("model", "fp16", False, False)),
        (
            "diffusion_pytorch_model-00001-of-00002.safetensors",
            WeightsName("diffusion_pytorch_model", None, True, False),
        ),
        ("model.fp16-00001-of-00002.safetensors", WeightsName("model", "fp16", True, False)),
        ("model-00001-of-00002.fp16.safetensors", WeightsName("model", "fp16", True, False)),
        ("model.safetensors.index.json", WeightsName("model", None, False, True)),
        ("model.safetensors.index.fp16.json", WeightsName("model", "fp16", False, True)),
        ("model.fp16.safetensors.index.json", WeightsName("model", "fp16", False, True)),
        ("pytorch_model.bin", None),
        ("adapter_model.safetensors", None),
    ],
)
def test_what_a_name_says(name: str, parts: WeightsName | None) -> None:
    assert weights_name(name) == parts


def loaded(folder: Path) -> list[str]:
    return [path.name for path in loaded_files(Folder(folder))]


def test_the_plain_file_is_loaded_and_a_variant_beside_it_is_not(tmp_path: Path) -> None:
    plain = write_tensors(tmp_path / "model.safetensors")
    write_tensors(tmp_path / "model.fp16.safetensors", values=4)
    write_tensors(tmp_path / "model.non_ema.safetensors")
    assert loaded(tmp_path) == ["model.safetensors"]
    assert size_of(loaded_files(Folder(tmp_path))) == plain.stat().st_size
    plain.unlink()
    with pytest.raises(InvalidRequest, match=r"several variants \(fp16, non_ema\)"):
        loaded(tmp_path)
    (tmp_path / "model.non_ema.safetensors").unlink()
    assert loaded(tmp_path) == ["model.fp16.safetensors"]


def test_shards_are_those_of_the_index(tmp_path: Path) -> None:
    names = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    for name, tensor in zip(names, "ab", strict=True):
        write_tensors(tmp_path / name, tensor)
    index = tmp_path / "model.safetensors.index.json"
    write_json(index, {"weight_map": {"a": names[0], "b": names[1]}})
    assert loaded(tmp_path) == names

    write_json(index, {"weight_map": {"a": names[1], "b": names[1]}})
    with pytest.raises(InvalidRequest, match="lacks the tensor 'a'"):
        loaded(tmp_path)
    write_json(index, {"weight_map": {"a": names[0], "c": "model-00003-of-00003.safetensors"}})
    with pytest.raises(InvalidRequest, match="has no model-00003-of-00003"):
        loaded(tmp_path)
    write_json(index, {"weight_map": {"a": "../../elsewhere.safetensors"}})
    with pytest.raises(InvalidRequest, match="no plain name"):
        loaded(tmp_path)
    write_json(index, {})
    with pytest.raises(InvalidRequest, match="names no shards"):
        loaded(tmp_path)
    write_tensors(tmp_path / "model.safetensors")
    assert loaded(tmp_path) == ["model.safetensors"]


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.ckpt", "weights.PT"])
def test_pickles_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="has no weights"):
        loaded(tmp_path)
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(InvalidRequest, match=f"Python pickles \\({name}\\).*safetensors"):
        loaded(tmp_path)
    write_tensors(tmp_path / "model.safetensors")
    assert loaded(tmp_path) == ["model.safetensors"]
