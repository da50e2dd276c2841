"""The header of a LoRA adapter in the safetensors format, read as its file comes and without trusting a byte of it.

Layout (huggingface/safetensors, README): the header's length in 8 bytes, little-endian; the header, a JSON object of
`{name: {dtype, shape, data_offsets}}` and `__metadata__`; the tensors' bytes, without gaps. Nothing of it is code.
"""

import math
import re
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from infra.errors import InvalidRequest

MAX_HEADER_BYTES: Final = 8 << 20
"""An adapter for every layer of the largest models has a header of some hundred KiB."""
MAX_TENSORS: Final = 65_536
MAX_DIMENSIONS: Final = 8
_LENGTH: Final = struct.Struct("<Q")
_VALUE_BYTES: Final = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
    "BOOL": 1,
}  # fmt: skip
_RUNS_CODE: Final = "opening such a file can run code, so it never is: convert it to safetensors"
_MAGICS: Final = (
    (b"PK\x03\x04", f"a zip archive, as PyTorch checkpoints are; {_RUNS_CODE}"),
    *((bytes((0x80, protocol)), f"a Python pickle (.pt, .bin); {_RUNS_CODE}") for protocol in range(2, 6)),
    (b"GGUF", "a GGUF file: adapters of image models are safetensors"),
    (b"version https://git-lfs", "a Git LFS pointer, not the adapter: fetch it with `git lfs pull`"),
    (b"<", "a web page or XML: the address gave a page in place of the file"),
)
_MOST_MAGIC: Final = max(len(magic) for magic, _what in _MAGICS)
MAX_RANK: Final = 8192
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,500}", re.ASCII)
"""Of a tensor. The libraries make patterns of them, and a pattern can take for ever."""
_HALF = re.compile(r"(?P<stem>.+?)[._]lora(?:_linear_layer)?[._](?P<half>A|B|down|up)(?:\.[A-Za-z0-9_-]+)?\.weight")
"""One matrix of a pair, in the spellings of peft, kohya-ss and older diffusers."""
_BESIDES: Final = (
    ".alpha", ".lora_magnitude_vector", ".lora_magnitude_vector.weight", ".lora_B.bias", ".lora_up.bias",
    ".diff", ".diff_b", ".diff_m",
)  # fmt: skip
"""What a pair may have with it."""


@dataclass(frozen=True, slots=True)
class LoraFacts:
    """What an adapter's header says: its largest rank, and how many layers it changes."""

    rank: int
    layers: int


class _Tensor(NamedTuple):
    begin: int
    end: int
    shape: list[int]


class LoraHeader:
    """Reads the header of a file that is fed to it in pieces; all of the file, from its first byte."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._size_bytes = 0
        self._whole_bytes = 0
        """Of the file, by its header; 0 until that has come."""
        self._facts: LoraFacts | None = None

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the file.

        Raises:
            InvalidRequest: it is no LoRA adapter; said as soon as that is plain.
        """
        self._size_bytes += len(data)
        if self._facts is None:
            self._head += data[: _LENGTH.size + MAX_HEADER_BYTES - len(self._head)]
            self._look()
        if self._facts is not None and self._size_bytes > self._whole_bytes:
            raise _bad(f"it has more bytes than the {self._whole_bytes} that its header tells of")

    def finish(self) -> LoraFacts:
        """What the file is, once all of it has come.

        Raises:
            InvalidRequest: it is cut off.
        """
        if self._facts is None:
            _refuse_magic(bytes(self._head[:_MOST_MAGIC]))
            raise _bad(f"it ends within its header, after {self._size_bytes} bytes: send it whole")
        if self._size_bytes < self._whole_bytes:
            raise _bad(f"it is cut off: {self._size_bytes} of {self._whole_bytes} bytes have come")
        return self._facts

    def _look(self) -> None:
        if len(self._head) < max(_LENGTH.size, _MOST_MAGIC):
            return
        _refuse_magic(bytes(self._head[:_MOST_MAGIC]))
        header_bytes = _LENGTH.unpack_from(self._head)[0]
        if not 2 <= header_bytes <= MAX_HEADER_BYTES:
            raise _bad(f"its first 8 bytes tell of a header of {header_bytes} bytes, {MAX_HEADER_BYTES} are the most")
        start = _LENGTH.size + header_bytes
        if len(self._head) < start:
            return
        tensors = _tensors(bytes(self._head[_LENGTH.size : start]))
        self._whole_bytes = start + _data_bytes(tensors)
        self._facts = _facts(tensors)
        self._head.clear()


def _refuse_magic(head: bytes) -> None:
    for magic, what in _MAGICS:
        if head.startswith(magic):
            raise _bad(f"it is {what}")


def _tensors(text: bytes) -> dict[str, _Tensor]:
    try:
        header = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _bad("its header is not JSON") from error
    if not isinstance(header, dict):
        raise _bad("its header is no JSON object")
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise _bad(f"it has {len(header)} tensors, {MAX_TENSORS} are the most")
    return {name: _tensor(name, fields) for name, fields in header.items()}


def _tensor(name: str, fields: object) -> _Tensor:
    match fields:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            value_bytes = _VALUE_BYTES.get(dtype)
        case _:
            raise _bad(f"its tensor {name[:100]!r} has no dtype, shape and data_offsets")
    if value_bytes is None:
        raise _bad(f"its tensor {name[:100]!r} is of the unknown type {dtype[:20]!r}")
    if len(shape) > MAX_DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
        raise _bad(f"the shape of its tensor {name[:100]!r} makes no sense")
    if not 0 <= begin <= end or end - begin != math.prod(shape) * value_bytes:
        raise _bad(f"the place of its tensor {name[:100]!r} does not fit its shape")
    return _Tensor(begin, end, shape)


def _data_bytes(tensors: dict[str, _Tensor]) -> int:
    """Where the last tensor ends; each begins where the one before it ends."""
    at = 0
    for tensor in sorted(tensors.values()):
        if tensor.begin != at:
            raise _bad("its tensors overlap, or leave gaps")
        at = tensor.end
    return at


def _facts(tensors: dict[str, _Tensor]) -> LoraFacts:
    halves: dict[str, dict[str, list[int]]] = {}
    for name, tensor in tensors.items():
        if not _NAME.fullmatch(name):
            raise _bad(f"{name[:100]!r} is no name of a tensor")
        match = _HALF.fullmatch(name)
        if match is not None:
            half = "down" if match["half"] in ("A", "down") else "up"
            halves.setdefault(match["stem"], {})[half] = tensor.shape
        elif not name.endswith(_BESIDES):
            raise _bad(
                f"its tensor {name[:100]!r} is no part of a LoRA, which has pairs of lora_A and lora_B, or lora_down "
                "and lora_up: a whole model, or an adapter of another kind, is not one"
            )
    single = next((stem for stem, both in halves.items() if len(both) < 2), None)
    if single is not None:
        raise _bad(f"the layer {single[:100]!r} has one half of its pair only")
    if not halves:
        raise _bad("it has no pair of lora_A and lora_B, or lora_down and lora_up")
    return LoraFacts(max(_rank(stem, **pair) for stem, pair in halves.items()), len(halves))


def _rank(stem: str, down: list[int], up: list[int]) -> int:
    """The rank of a pair. Room is made by it, before the matrices are looked at."""
    sound = len(down) > 1 and len(up) > 1 and 0 not in (*down, *up) and down[0] == up[1]
    if not sound or down[0] > MAX_RANK:
        raise _bad(f"the shapes of the layer {stem[:100]!r}, {down} and {up}, have no rank of 1 to {MAX_RANK}")
    return down[0]


def _bad(why: str) -> InvalidRequest:
    return InvalidRequest(f"the file is no LoRA adapter in safetensors: {why}", param="file", code="not_a_lora")
