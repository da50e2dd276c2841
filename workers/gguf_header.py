"""The header of a GGUF file, read without trusting a byte of it.

A file may be cut off, or made to hurt: counts of 2^60, strings longer than the file, arrays in arrays. Time and memory
stay bounded: small values are kept, large arrays are stepped over, the weights themselves are never read. Layout:
magic, version, counts, key-value pairs, tensor records, padding, weights; all little-endian.
"""

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from infra.errors import InvalidRequest

GGUF_MAGIC: Final = b"GGUF"
MAX_KEYS: Final = 2_000
MAX_TENSORS: Final = 65_536
MAX_NAME_BYTES: Final = 256
MAX_KEPT_STRING_BYTES: Final = 4096
MAX_KEPT_ARRAY: Final = 1024
MAX_HEADER_BYTES: Final = 512 << 20
MAX_STRINGS: Final = 5_000_000
"""Strings of all arrays together: ten times the largest vocabulary with its merges."""
MAX_DIMENSIONS: Final = 4
_WINDOW_BYTES: Final = 1 << 20
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_FORMATS: Final = {kind: struct.Struct("<" + letter) for kind, letter in _SCALARS.items()}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

TENSOR_BLOCKS: Final[dict[int, tuple[int, int]]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66),
    17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54),
    35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip
"""Values in a block and bytes of a block, by ggml's number of the tensor type."""

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """An array that was stepped over: how many values it has."""

    count: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a header says. `values` has scalars, strings and short arrays of numbers; other arrays as `ArrayFacts`."""

    version: int
    values: dict[str, Value | ArrayFacts]
    tensor_count: int
    tensor_type_bytes: dict[int, int]
    """Bytes of weights by ggml's number of the tensor type."""
    file_bytes: int

    def integer(self, key: str) -> int | None:
        """A whole number, else None."""
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(self, key: str) -> str | None:
        """A string, else None."""
        value = self.values.get(key)
        return value if isinstance(value, str) else None


def read_gguf_header(path: Path) -> GgufHeader:
    """Read and check the header; every tensor must lie inside the file.

    Raises:
        InvalidRequest: not a GGUF of version 2 or 3, cut off, or beyond the limits of this module.
    """
    with open_regular(path) as (file, size_bytes):
        return _Header(_Bytes(file, size_bytes, path)).read()


@contextmanager
def open_regular(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a plain file for reading; give it with its size. A pipe or device neither opens nor blocks.

    Raises:
        InvalidRequest: it is missing, unreadable, or no plain file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise InvalidRequest(f"{path} is not a plain file; name the weights file itself")
    with open(handle, "rb", buffering=0) as raw:
        try:
            yield raw, found.st_size
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from error


class _Bytes:
    """A file seen through a window that moves forward only; nothing is read that the file cannot hold."""

    def __init__(self, file: BinaryIO, size_bytes: int, path: Path) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._file = file
        self._window = b""
        self._at = 0
        self._window_start = 0

    @property
    def position(self) -> int:
        """Offset of the next byte, in the file."""
        return self._window_start + self._at

    def fail(self, what: str) -> InvalidRequest:
        """The error to raise."""
        return InvalidRequest(f"{self.path} is not a usable GGUF file: {what}")

    def need(self, count: int) -> None:
        """Make sure that `count` more bytes of header can exist."""
        end = self.position + count
        if end > self.size_bytes:
            raise self.fail("it ends inside its header; the download is not complete, get it again")
        if end > MAX_HEADER_BYTES:
            raise self.fail(f"its header is larger than {MAX_HEADER_BYTES >> 20} MiB")

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if self._at + count > len(self._window):
            self.need(count)
            self._fill(count)
        start, self._at = self._at, self._at + count
        return self._window[start : self._at]

    def skip(self, count: int) -> None:
        """Step over `count` bytes; far ones are not read."""
        if self._at + count <= len(self._window):
            self._at += count
            return
        self.need(count)
        self._window_start, self._window, self._at = self.position + count, b"", 0

    def u32(self) -> int:
        """An unsigned number of 32 bits."""
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        """An unsigned number of 64 bits."""
        return int(_U64.unpack(self.take(8))[0])

    def name(self, what: str) -> str:
        """A short string."""
        length = self.u64()
        if not 0 < length <= MAX_NAME_BYTES:
            raise self.fail(f"{what} has {length} bytes, allowed are 1 to {MAX_NAME_BYTES}")
        return self.take(length).decode("utf-8", "replace")

    def _fill(self, count: int) -> None:
        self._window_start, wanted = self.position, max(count, _WINDOW_BYTES)
        self._file.seek(self._window_start)
        pieces, have = [], 0
        while have < wanted and (piece := self._file.read(wanted - have)):
            pieces.append(piece)
            have += len(piece)
        self._window, self._at = b"".join(pieces), 0
        if have < count:
            raise self.fail("it became shorter while it was read")


class _Header:
    """One pass over a header."""

    def __init__(self, data: _Bytes) -> None:
        self._data = data
        self._strings_left = MAX_STRINGS

    def read(self) -> GgufHeader:
        data = self._data
        version = self._version()
        tensor_count, key_count = data.u64(), data.u64()
        if tensor_count > MAX_TENSORS or key_count > MAX_KEYS:
            raise data.fail(
                f"it claims {tensor_count} tensors (limit {MAX_TENSORS}) and {key_count} keys (limit {MAX_KEYS})"
            )
        values: dict[str, Value | ArrayFacts] = {}
        for _ in range(key_count):
            key = data.name("a key")
            if key in values:
                raise data.fail(f"key {key[:80]!r} stands there twice")
            values[key] = self._value(data.u32())
        type_bytes, spans = self._tensors(tensor_count)
        self._check_spans(spans, values.get("general.alignment", 32))
        return GgufHeader(version, values, tensor_count, type_bytes, data.size_bytes)

    def _version(self) -> int:
        data = self._data
        if data.size_bytes == 0:
            raise data.fail("it is empty; get it again")
        if data.take(4) != GGUF_MAGIC:
            raise data.fail("it does not begin with GGUF")
        version = data.u32()
        if version in (2 << 24, 3 << 24):
            raise data.fail("it is big-endian; this machine needs the little-endian file")
        if version not in (2, 3):
            raise data.fail(f"its version is {version}; versions 2 and 3 can be read")
        return version

    def _value(self, kind: int) -> Value | ArrayFacts:
        data = self._data
        if kind in _FORMATS:
            value: int | float = _FORMATS[kind].unpack(data.take(_FORMATS[kind].size))[0]
            return bool(value) if kind == _BOOL else value
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(data.u32(), data.u64())
        raise data.fail(f"a value has the unknown type {kind}")

    def _string(self) -> str:
        """A string value; of a long one (a chat template) the beginning."""
        length = self._data.u64()
        self._data.need(length)
        kept = self._data.take(min(length, MAX_KEPT_STRING_BYTES)).decode("utf-8", "replace")
        self._data.skip(max(0, length - MAX_KEPT_STRING_BYTES))
        return kept

    def _array(self, kind: int, count: int) -> Value | ArrayFacts:
        data = self._data
        if kind == _STRING:
            data.need(8 * count)
            self._skip_strings(count)
            return ArrayFacts(count)
        if kind not in _FORMATS:
            raise data.fail("an array holds arrays" if kind == _ARRAY else f"an array has the unknown type {kind}")
        item = _FORMATS[kind]
        data.need(item.size * count)
        if count > MAX_KEPT_ARRAY:
            data.skip(item.size * count)
            return ArrayFacts(count)
        numbers = struct.unpack(f"<{count}{_SCALARS[kind]}", data.take(item.size * count))
        return tuple(bool(number) for number in numbers) if kind == _BOOL else numbers

    def _skip_strings(self, count: int) -> None:
        self._strings_left -= count
        if self._strings_left < 0:
            raise self._data.fail(f"its arrays hold more than {MAX_STRINGS} strings")
        take, skip, unpack = self._data.take, self._data.skip, _U64.unpack
        for _ in range(count):
            skip(unpack(take(8))[0])

    def _tensors(self, count: int) -> tuple[dict[int, int], list[tuple[int, int]]]:
        """Bytes by type; offset and length of each tensor, from the start of the weights."""
        data = self._data
        names: set[str] = set()
        type_bytes: dict[int, int] = {}
        spans = []
        for _ in range(count):
            name = data.name("a tensor's name")
            if name in names:
                raise data.fail(f"tensor {name[:80]!r} stands there twice")
            names.add(name)
            values = self._tensor_values(name)
            kind, offset = data.u32(), data.u64()
            per_block, block_bytes = TENSOR_BLOCKS.get(kind, (1, 0))
            length = -(-values // per_block) * block_bytes
            type_bytes[kind] = type_bytes.get(kind, 0) + length
            spans.append((offset, length))
        return type_bytes, spans

    def _tensor_values(self, name: str) -> int:
        dimensions = self._data.u32()
        if dimensions > MAX_DIMENSIONS:
            raise self._data.fail(f"tensor {name[:80]!r} has {dimensions} dimensions, at most {MAX_DIMENSIONS} exist")
        values = 1
        for _ in range(dimensions):
            values *= self._data.u64()
        return values

    def _check_spans(self, spans: list[tuple[int, int]], alignment: object) -> None:
        data = self._data
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
            raise data.fail("its general.alignment is not a power of two")
        start = -(-data.position // alignment) * alignment
        needed = max((start + offset + length for offset, length in spans), default=0)
        if needed > data.size_bytes:
            missing = needed - data.size_bytes
            raise data.fail(
                f"{missing} bytes are missing at its end ({data.size_bytes} of {needed} are there); "
                "the download is not complete, get it again"
            )
