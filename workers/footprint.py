"""The memory that one engine process of a model takes, by the format of its weights."""

from typing import Final, NamedTuple

from infra.errors import InvalidRequest, LoadFailed
from infra.settings import LlamaSettings
from workers.pools.card import slot_context_tokens
from workers.types import ModelEntry, ModelFormat
from workers.weights import memory_bytes, read_weights


class Share(NamedTuple):
    """Memory of a runtime: its libraries, its weights as often as it holds them, and what each request at work adds."""

    base_bytes: int
    weights_ratio: float
    slot_bytes: int


SHARES: Final[dict[ModelFormat, Share]] = {
    ModelFormat.WHISPER: Share(base_bytes=200 << 20, weights_ratio=1.1, slot_bytes=512 << 20),
    ModelFormat.PIPER: Share(base_bytes=400 << 20, weights_ratio=2.0, slot_bytes=16 << 20),
    ModelFormat.RAPIDOCR: Share(base_bytes=200 << 20, weights_ratio=2.0, slot_bytes=700 << 20),
    # torch with transformers takes 460 MiB, a full batch of MiniLM 300 more, of a wider network half its weights; its
    # requests take turns.
    ModelFormat.SENTENCE_TRANSFORMERS: Share(base_bytes=800 << 20, weights_ratio=1.5, slot_bytes=16 << 20),
    ModelFormat.DIFFUSERS: Share(base_bytes=800 << 20, weights_ratio=1.1, slot_bytes=2048 << 20),
}
"""Measured with the packaged models; every runtime but llama.cpp has a line here."""


def needed_bytes(entry: ModelEntry, settings: LlamaSettings) -> int:
    """Memory of one engine process. Reads the header of a GGUF.

    Raises:
        LoadFailed: the file has gone or gone bad since it was added, which is no fault of the request's.
    """
    share = SHARES.get(entry.format)
    if share is not None:
        weights_bytes = round(share.weights_ratio * entry.weights_bytes)
        return share.base_bytes + weights_bytes + entry.max_instances * share.slot_bytes
    assert entry.path is not None
    try:
        facts = read_weights(entry.path)
    except InvalidRequest as error:
        raise LoadFailed(f"model '{entry.name}' could not be loaded: {error.message}") from error
    context_tokens = slot_context_tokens(entry, settings)
    return memory_bytes(facts, context_tokens, entry.max_instances) + settings.cache_ram_mib * 2**20
