"""What a file of weights is, read from the file itself: format, capabilities, and the memory it will take."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.errors import InvalidRequest
from workers.gguf_header import GGUF_MAGIC, ArrayFacts, GgufHeader, Value, open_regular, read_gguf_header
from workers.types import Capability, ModelFormat, Pooling

MAX_SPLIT_PARTS: Final = 1000
PASS_TOKENS: Final = 512
"""Tokens that llama.cpp runs through the network at once (its `n_ubatch`)."""
CACHE_VALUE_BYTES: Final = 2
"""The KV cache holds 16-bit floats."""
ENGINE_BYTES: Final = 64 << 20
"""An engine process with no model: interpreter, libraries, HTTP server."""
TOKENIZER_ENTRY_BYTES: Final = 320
"""Host memory of one token with its merge, in llama.cpp's tables."""

_PART_NAME: Final = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf")
_POOLINGS: Final = (Pooling.NONE, Pooling.MEAN, Pooling.CLS, Pooling.LAST, Pooling.RANK)
_QUANTISATIONS: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4", 40: "Q1_0",
}  # fmt: skip
_ENCODERS: Final = frozenset({
    "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
    "t5encoder", "gemma-embedding", "llama-embed",
})  # fmt: skip
_NOT_SERVED: Final = {
    "clip": "it is the picture or sound half of a model (mmproj); name the language model",
    "t5": "it is an encoder-decoder, which the llama.cpp server does not serve",
    "wavtokenizer-dec": "it is the decoder half of a speech model",
}
_RUNS_CODE: Final = "such a file can run code when it is opened, so it never is"
_MAGICS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"PK\x03\x04", f"a zip archive, as PyTorch checkpoints are: {_RUNS_CODE}"),
    *((bytes((0x80, protocol)), f"a Python pickle (.pt, .bin): {_RUNS_CODE}") for protocol in range(2, 6)),
    (b"version https://git-lfs", "a Git LFS pointer, not the weights; fetch it with `git lfs pull`"),
    (b"<", "a web page or XML, not weights; the download was answered with a page"),
    (b"lmgg", "a GGML file from before GGUF; convert it with llama.cpp's tools"),
    (b"fmgg", "a GGML file from before GGUF; convert it with llama.cpp's tools"),
    (b"tjgg", "a GGML file from before GGUF; convert it with llama.cpp's tools"),
    (b"\x1f\x8b", "gzip; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd; unpack it first"),
)


@dataclass(frozen=True, slots=True)
class WeightsFacts:
    """What one model's file, with all its split parts, says of itself.

    `kv_heads` has one number a layer; `key_width` and `value_width` are of one head, in numbers. `total_bytes` are of
    all parts on disk.
    """

    path: Path
    format: ModelFormat
    architecture: str
    name: str | None
    quantisation: str
    context_tokens: int | None
    embedding_dimensions: int | None
    feed_forward_width: int
    block_count: int
    head_count: int
    kv_heads: tuple[int, ...]
    key_width: int
    value_width: int
    vocabulary_tokens: int
    pooling: Pooling | None
    causal: bool
    has_chat_template: bool
    split_count: int
    total_bytes: int


def read_weights(path: Path) -> WeightsFacts:
    """Read what a weights file is. The format comes from its first bytes; for a split model name its first part.

    Raises:
        InvalidRequest: not GGUF, damaged, cut off, a part missing, or no model that can be served.
    """
    _require_gguf(path)
    header = read_gguf_header(path)
    architecture = header.text("general.architecture")
    kind = header.text("general.type")
    if kind not in (None, "model"):
        raise InvalidRequest(f"{path} holds no model but {kind!r} (general.type); name the model it belongs to")
    if not architecture:
        raise InvalidRequest(f"{path} does not say its general.architecture; convert the model again")
    if not header.tensor_count:
        raise InvalidRequest(f"{path} holds no weights, only a vocabulary or settings; name the model itself")
    parts = _split_parts(path, header)
    return _facts(path, header, architecture, parts)


def capabilities_of(facts: WeightsFacts) -> tuple[Capability, ...]:
    """What a model does: by its pooling first, then by whether it reads left to right.

    Raises:
        InvalidRequest: it is of a kind that cannot be served.
    """
    if facts.architecture in _NOT_SERVED:
        raise InvalidRequest(f"{facts.path} cannot be served: {_NOT_SERVED[facts.architecture]}")
    if facts.pooling is Pooling.RANK:
        return (Capability.RERANK,)
    if not facts.causal or facts.pooling not in (None, Pooling.NONE):
        return (Capability.EMBEDDINGS,)
    if facts.has_chat_template:
        return (Capability.CHAT, Capability.COMPLETIONS)
    return (Capability.COMPLETIONS,)


def cache_bytes(facts: WeightsFacts, context_tokens: int, slots: int) -> int:
    """The KV cache of `slots` conversations of `context_tokens` each; an upper bound where attention slides."""
    if not facts.causal:
        return 0
    per_token = sum(facts.kv_heads) * (facts.key_width + facts.value_width) * CACHE_VALUE_BYTES
    return per_token * context_tokens * slots


def memory_bytes(facts: WeightsFacts, context_tokens: int, slots: int) -> int:
    """What an engine process takes with this model loaded: weights, KV cache, working memory; without prompt caches."""
    width = facts.embedding_dimensions or 0
    pass_values = facts.vocabulary_tokens + 4 * width + 2 * facts.feed_forward_width
    working = 4 * PASS_TOKENS * pass_values
    tokenizer = TOKENIZER_ENTRY_BYTES * facts.vocabulary_tokens
    return facts.total_bytes + cache_bytes(facts, context_tokens, slots) + working + tokenizer + ENGINE_BYTES


def _require_gguf(path: Path) -> None:
    """Name what the file is when it is not GGUF."""
    with open_regular(path) as (file, size_bytes):
        start = file.read(64)
    if start.startswith(GGUF_MAGIC):
        return
    if not size_bytes:
        raise InvalidRequest(f"{path} is empty; get it again")
    what = next((what for magic, what in _MAGICS if start.startswith(magic)), "of no known format")
    if len(start) > 8 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= size_bytes - 8:
        raise InvalidRequest(f"{path} is safetensors; name the folder that it lies in, with its config.json")
    raise InvalidRequest(f"{path} is {what}; the base install serves GGUF")


def _split_parts(path: Path, header: GgufHeader) -> tuple[GgufHeader, ...]:
    """The headers of all parts, each read and checked; one for a model in one file."""
    count = header.integer("split.count") or 1
    if count <= 1:
        return (header,)
    named = _PART_NAME.fullmatch(path.name)
    if named is None or int(named["count"]) != count or count > MAX_SPLIT_PARTS:
        raise InvalidRequest(f"{path} is one of {count} parts; its name must end in -00001-of-{count:05}.gguf")
    if header.integer("split.no") != 0 or int(named["part"]) != 1:
        raise InvalidRequest(f"{path} is a later part of a split model; name its first, {named['stem']}-00001-of-…")
    others = [path.with_name(f"{named['stem']}-{part:05}-of-{count:05}.gguf") for part in range(2, count + 1)]
    missing = [other.name for other in others if not other.is_file()]
    if missing:
        raise InvalidRequest(f"{len(missing)} of {count} parts of {path} are missing, first {missing[0]}; get them too")
    return (header, *(_later_part(other, number, count) for number, other in enumerate(others, start=1)))


def _later_part(path: Path, number: int, count: int) -> GgufHeader:
    header = read_gguf_header(path)
    if header.integer("split.no") != number or header.integer("split.count") != count:
        raise InvalidRequest(f"{path} is not part {number + 1} of {count} of its model; get it again")
    return header


def _facts(path: Path, header: GgufHeader, architecture: str, parts: tuple[GgufHeader, ...]) -> WeightsFacts:
    def number(key: str, default: int = 0) -> int:
        found = header.integer(f"{architecture}.{key}")
        return default if found is None or not 0 <= found < 1 << 32 else found

    blocks, width = number("block_count"), number("embedding_length")
    heads = max(_per_layer(header.values.get(f"{architecture}.attention.head_count"), 1, 1))
    head_size = width // heads if heads else 0
    causal = header.values.get(f"{architecture}.attention.causal", architecture not in _ENCODERS)
    pooling = header.integer(f"{architecture}.pooling_type")
    return WeightsFacts(
        path=path,
        format=ModelFormat.GGUF,
        architecture=architecture,
        name=header.text("general.name"),
        quantisation=_quantisation(header),
        context_tokens=number("context_length") or None,
        embedding_dimensions=width or None,
        feed_forward_width=max(_per_layer(header.values.get(f"{architecture}.feed_forward_length"), 1, 0)),
        block_count=blocks,
        head_count=heads,
        kv_heads=_per_layer(header.values.get(f"{architecture}.attention.head_count_kv"), min(blocks, 10_000), heads),
        key_width=number("attention.key_length", head_size),
        value_width=number("attention.value_length", head_size),
        vocabulary_tokens=_vocabulary(header, architecture),
        pooling=_POOLINGS[pooling] if pooling is not None and 0 <= pooling < len(_POOLINGS) else None,
        causal=bool(causal),
        has_chat_template=bool(header.text("tokenizer.chat_template")),
        split_count=len(parts),
        total_bytes=sum(part.file_bytes for part in parts),
    )


def _per_layer(value: Value | ArrayFacts | None, layers: int, default: int) -> tuple[int, ...]:
    """One number a layer, from a number for all or an array; nonsense counts as `default`."""
    if isinstance(value, tuple) and value:
        return tuple(_sane(item, default) for item in value)
    return (_sane(value, default),) * layers


def _sane(value: object, default: int) -> int:
    return value if type(value) is int and 0 <= value < 1 << 24 else default


def _vocabulary(header: GgufHeader, architecture: str) -> int:
    tokens = header.values.get("tokenizer.ggml.tokens")
    return tokens.count if isinstance(tokens, ArrayFacts) else header.integer(f"{architecture}.vocab_size") or 0


def _quantisation(header: GgufHeader) -> str:
    """llama.cpp's name of the file type."""
    number = header.integer("general.file_type")
    return "unknown" if number is None else _QUANTISATIONS.get(number, f"type {number}")
