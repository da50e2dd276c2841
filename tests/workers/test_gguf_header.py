"""The reader of GGUF headers: what it reads, and that no file can hurt it."""

import os
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from tests.tiny_gguf import write_tiny_llama
from workers.gguf_header import MAX_KEYS, MAX_STRINGS, MAX_TENSORS, ArrayFacts, read_gguf_header

Write = Callable[[bytes], Path]
U8, U32, STRING, ARRAY, F32_TENSOR = 0, 4, 8, 9, 0


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def u32_pair(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", U32, value)


def array_pair(key: str, kind: int, count: int, data: bytes) -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, kind, count) + data


def tensor(name: str, dimensions: tuple[int, ...], offset: int = 0, kind: int = F32_TENSOR) -> bytes:
    return (
        text(name)
        + struct.pack("<I", len(dimensions))
        + struct.pack(f"<{len(dimensions)}Q", *dimensions)
        + struct.pack("<IQ", kind, offset)
    )


def gguf(
    pairs: tuple[bytes, ...] = (), tensors: tuple[bytes, ...] = (), weights: bytes = b"", version: int = 3
) -> bytes:
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + weights


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(data: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return path

    return write_file


def refusal(path: Path) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read_gguf_header(path)
    return caught.value.message


def test_reads_every_kind_of_value(write: Write) -> None:
    pairs = (
        text("u8") + struct.pack("<IB", 0, 200),
        text("i8") + struct.pack("<Ib", 1, -3),
        text("u16") + struct.pack("<IH", 2, 60000),
        text("i16") + struct.pack("<Ih", 3, -300),
        text("i32") + struct.pack("<Ii", 5, -70000),
        text("f32") + struct.pack("<If", 6, 0.5),
        text("bool") + struct.pack("<IB", 7, 1),
        text("string") + struct.pack("<I", STRING) + text("né"),
        text("u64") + struct.pack("<IQ", 10, 1 << 60),
        text("i64") + struct.pack("<Iq", 11, -(1 << 60)),
        text("f64") + struct.pack("<Id", 12, 0.25),
        array_pair("heads", U32, 3, struct.pack("<3I", 4, 0, 4)),
        array_pair("flags", 7, 2, b"\x01\x00"),
        array_pair("long", U8, 5000, bytes(5000)),
        array_pair("tokens", STRING, 2, text("a") + text("b")),
    )
    header = read_gguf_header(write(gguf(pairs, (tensor("t", (2, 4)),), bytes(32))))
    assert header.values == {
        "u8": 200, "i8": -3, "u16": 60000, "i16": -300, "i32": -70000, "f32": 0.5, "bool": True, "string": "né",
        "u64": 1 << 60, "i64": -(1 << 60), "f64": 0.25, "heads": (4, 0, 4), "flags": (True, False),
        "long": ArrayFacts(5000), "tokens": ArrayFacts(2),
    }  # fmt: skip
    assert header.tensor_count == 1
    assert header.tensor_type_bytes == {F32_TENSOR: 32}
    assert header.integer("bool") is None
    assert header.text("u8") is None


def test_long_strings_are_cut_and_what_follows_is_still_read(write: Write) -> None:
    pairs = (text("template") + struct.pack("<I", STRING) + text("x" * 3_000_000), u32_pair("after", 7))
    header = read_gguf_header(write(gguf(pairs)))
    assert header.text("template") == "x" * 4096
    assert header.integer("after") == 7


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"GG", "ends inside its header"),
        (b"GGUF" + struct.pack("<I", 3), "ends inside its header"),
        (b"gguf" + bytes(100), "does not begin with GGUF"),
        (gguf(version=1), "version is 1"),
        (gguf(version=4), "version is 4"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), f"limit {MAX_TENSORS}"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), f"limit {MAX_KEYS}"),
        (b"GGUF" + struct.pack("<IQQ", 3, MAX_TENSORS, MAX_KEYS), "ends inside its header"),
        (gguf((struct.pack("<Q", 1 << 60),)), "a key has 1152921504606846976 bytes"),
        (gguf((text("") + struct.pack("<II", U32, 0),)), "a key has 0 bytes"),
        (gguf((text("k") + struct.pack("<IQ", STRING, 1 << 62),)), "ends inside its header"),
        (gguf((text("k") + struct.pack("<I", 13) + bytes(64),)), "unknown type 13"),
        (gguf((array_pair("k", U32, 1 << 62, b""),)), "ends inside its header"),
        (gguf((array_pair("k", STRING, 1 << 60, b""),)), "ends inside its header"),
        (gguf((array_pair("k", STRING, 1, struct.pack("<Q", 1 << 63)),)), "ends inside its header"),
        (gguf((array_pair("k", ARRAY, 1, b"".join([struct.pack("<IQ", ARRAY, 1)] * 9000)),)), "array holds arrays"),
        (gguf((array_pair("k", 99, 1, bytes(64)),)), "unknown type 99"),
        (gguf((u32_pair("k", 1), u32_pair("k", 2))), "stands there twice"),
        (gguf((u32_pair("general.alignment", 0),)), "alignment"),
        (gguf((u32_pair("general.alignment", 24),)), "alignment"),
        (gguf((u32_pair("general.alignment", 1 << 31),)), "alignment"),
        (gguf((), (tensor("t", (1,) * 5),)), "has 5 dimensions"),
        (gguf((), (tensor("t", (1 << 63,) * 4),)), "bytes are missing"),
        (gguf((), (tensor("t", (1,), offset=1 << 63),)), "bytes are missing"),
        (gguf((), (tensor("t", (8,)), tensor("t", (8,))), bytes(64)), "stands there twice"),
        (gguf((), (tensor("t", (8,), offset=1 << 40, kind=77),), bytes(64)), "bytes are missing"),
    ],
)
def test_refuses_hostile_and_broken_files(write: Write, data: bytes, words: str) -> None:
    started = time.process_time()
    message = refusal(write(data))
    assert words in message
    assert len(message) < 1000
    assert time.process_time() - started < 1


def test_says_how_many_bytes_of_a_cut_download_are_missing(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    message = refusal(path)
    missing = int(message.split(" bytes are missing")[0].rsplit(" ", 1)[-1])
    assert 900 < missing <= 1000  # the padding behind the last tensor is no part of it
    assert f"{len(whole) - 1000} of" in message


def test_too_many_strings_end_early(write: Write) -> None:
    count = MAX_STRINGS + 1
    started = time.process_time()
    assert "strings" in refusal(write(gguf((array_pair("k", STRING, count, bytes(8 * count)),))))
    assert time.process_time() - started < 1


def test_a_huge_sparse_file_costs_neither_time_nor_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    path.write_bytes(gguf((array_pair("k", U32, 1 << 36, b""), u32_pair("after", 1))))
    os.truncate(path, 1 << 40)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    assert "larger than 512 MiB" in refusal(path)
    assert time.process_time() - started < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 32 << 10


def test_what_is_no_plain_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "no" in refusal(tmp_path / "missing.gguf").lower()
    assert "plain file" in refusal(tmp_path / "pipe")
    assert "plain file" in refusal(tmp_path)
    assert "plain file" in refusal(Path("/dev/zero"))
    assert "cannot be read" in refusal(Path("nul\0byte"))
