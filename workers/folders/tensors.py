"""Weights in the safetensors format: which files of a folder are loaded, and whether their headers are sound.

Layout (huggingface/safetensors, README): the header's length in 8 bytes, little-endian; the header, a JSON object of
`{name: {dtype, shape, data_offsets}}` and `__metadata__`; the tensors' bytes, without gaps. Nothing of it is code.
"""

import math
import re
import struct
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from infra.errors import InvalidRequest
from infra.types import Json
from workers.folders.files import PICKLES, Folder
from workers.gguf_header import open_regular

MOST_HEADER_BYTES: Final = 100 << 20
"""The format's own limit."""
MOST_TENSORS: Final = 1_000_000
MOST_SHARDS: Final = 1000
STEMS: Final = ("model", "diffusion_pytorch_model")
"""What files of weights are called: by transformers, and by diffusers."""
_LENGTH: Final = struct.Struct("<Q")
_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64, "F16": 16,
    "BF16": 16, "F32": 32, "F64": 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_VARIANT: Final = r"(?:\.(?P<{0}>[A-Za-z0-9_]+))?"
_WEIGHTS: Final = re.compile(
    rf"(?P<stem>{'|'.join(STEMS)}){_VARIANT.format('before')}(?:-(?P<part>\d{{5}})-of-(?P<count>\d{{5}}))?"
    rf"{_VARIANT.format('after')}\.safetensors(?P<index>\.index{_VARIANT.format('of')}\.json)?"
)


class WeightsName(NamedTuple):
    """What a file's name says: of which `variant` (None = the plain one), a shard of a set, or the set's index."""

    stem: str
    variant: str | None
    shard: bool
    is_index: bool


def weights_name(name: str) -> WeightsName | None:
    """The parts of a file's name; None for a file that no library would load as weights."""
    found = _WEIGHTS.fullmatch(name)
    if found is None:
        return None
    variant = found["before"] or found["after"] or found["of"]
    return WeightsName(found["stem"], variant, found["part"] is not None, found["index"] is not None)


def loaded_files(folder: Folder) -> tuple[Path, ...]:
    """The files of one network that are loaded: one, or the shards that an index names. Of several variants it is the
    plain one, else the only one that there is. Their headers are checked.

    Raises:
        InvalidRequest: there are none, only pickles, several variants without a plain one, a shard is missing, or a
            header is broken.
    """
    names = folder.names()
    found = {name: parts for name in names if (parts := weights_name(name)) is not None and not parts.shard}
    variants = {parts.variant for parts in found.values()}
    if not variants:
        raise InvalidRequest(_no_weights(folder, names))
    if None not in variants and len(variants) > 1:
        there = ", ".join(sorted(str(variant) for variant in variants))
        raise InvalidRequest(f"{folder.path} has its weights in several variants ({there}): keep the files of one")
    variant = None if None in variants else variants.pop()
    chosen = [name for name, parts in found.items() if parts.variant == variant]
    chosen.sort(key=lambda name: (found[name].is_index, name))
    if not found[chosen[0]].is_index:
        read_header(folder.path / chosen[0])
        return (folder.path / chosen[0],)
    return _shards(folder, chosen[0])


def size_of(files: tuple[Path, ...]) -> int:
    """Bytes of these files."""
    return sum(file.stat().st_size for file in files)


def read_header(path: Path) -> frozenset[str]:
    """The tensors' names, once the header is known to describe the file to its last byte.

    Raises:
        InvalidRequest: it is not safetensors, cut off, or its header contradicts itself.
    """
    with open_regular(path) as (file, size_bytes):
        head = file.read(_LENGTH.size)
        header_bytes = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
        if not 2 <= header_bytes <= min(MOST_HEADER_BYTES, size_bytes - _LENGTH.size):
            raise _broken(path, "its first 8 bytes are not the length of a header that it could hold")
        text = file.read(header_bytes)
    try:
        header = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _broken(path, "its header is no JSON") from error
    if not isinstance(header, dict) or len(header) > MOST_TENSORS:
        raise _broken(path, "its header is no object of tensors")
    header.pop("__metadata__", None)
    spans = sorted(_span(path, name, value) for name, value in header.items())
    end = 0
    for span in spans:
        if span[0] != end:
            raise _broken(path, "its tensors leave gaps, or lie over each other")
        end = span[1]
    if not spans or _LENGTH.size + header_bytes + end != size_bytes:
        raise _broken(path, f"it has {size_bytes} bytes, its header tells of {_LENGTH.size + header_bytes + end}")
    return frozenset(header)


def _span(path: Path, name: str, value: Json) -> tuple[int, int]:
    """Where a tensor's bytes are; there are as many as its shape needs."""
    tensor = value if isinstance(value, dict) else {}
    bits = _BITS.get(str(tensor.get("dtype")))
    shape, offsets = _whole_numbers(tensor.get("shape")), _whole_numbers(tensor.get("data_offsets"))
    if bits is None or shape is None or offsets is None or len(offsets) != 2:
        raise _broken(path, f"what it says of the tensor {name[:100]!r} cannot be read")
    if (offsets[1] - offsets[0]) * 8 != math.prod(shape) * bits:
        raise _broken(path, f"the tensor {name[:100]!r} has other bytes than its shape needs")
    return offsets[0], offsets[1]


def _whole_numbers(value: Json) -> list[int] | None:
    if not isinstance(value, list) or len(value) > 64:
        return None
    numbers = [each for each in value if type(each) is int and 0 <= each < 1 << 48]
    return numbers if len(numbers) == len(value) else None


def _shards(folder: Folder, index: str) -> tuple[Path, ...]:
    """The files that an index names, each with the tensors that it is said to hold."""
    placed = folder.json(index).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise InvalidRequest(f"{folder.path / index} names no shards: get it again")
    shards = sorted({folder.plain(shard) for shard in placed.values()})
    if len(shards) > MOST_SHARDS:
        raise InvalidRequest(f"{folder.path / index} names {len(shards)} shards: {MOST_SHARDS} are the most")
    folder.require(*shards)
    held = {shard: read_header(folder.path / shard) for shard in shards}
    for name, shard in placed.items():
        if name not in held[str(shard)]:
            raise InvalidRequest(
                f"{folder.path / str(shard)} lacks the tensor {name[:100]!r} of its index: get it again"
            )
    return tuple(folder.path / shard for shard in shards)


def _no_weights(folder: Folder, names: tuple[str, ...]) -> str:
    pickles = [name for name in names if name.lower().endswith(PICKLES)]
    if pickles:
        return (
            f"{folder.path} has its weights as Python pickles ({pickles[0]}): opening one can run code, so it never "
            "is. Get the model as safetensors"
        )
    return f"{folder.path} has no weights (model.safetensors or diffusion_pytorch_model.safetensors): get them too"


def _broken(path: Path, what: str) -> InvalidRequest:
    return InvalidRequest(f"{path} is not usable safetensors: {what}. Get it again")
