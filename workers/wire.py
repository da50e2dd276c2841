"""The shapes that the front and its engine processes share."""

from typing import Literal

from pydantic import Field

from infra.types import EngineId, Frozen, PoolId
from workers.types import ModelEntry


class EngineLaunch(Frozen):
    """One model to be served by one process on one card; also the note that a restarted front finds its engines by.

    `entry` is a local model (it has a path). `slots` requests are decoded at once, each with up to `context_tokens`
    of context. `threads` are CPU threads for decoding. `env` pins the process to its card.
    """

    engine: EngineId
    entry: ModelEntry
    pool: PoolId
    backend: Literal["cuda", "rocm", "vulkan", "cpu"]
    env: dict[str, str] = Field(default_factory=dict)
    slots: int
    context_tokens: int
    threads: int
    cache_ram_mib: int
    memory_bytes: int = 0
    """What the ledger holds for it."""


LLAMA_TOKEN_VARIABLE = "LLAMA_API_KEY"
"""Environment variable with the key that an engine process demands; llama-server's own name for it."""
