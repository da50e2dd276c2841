"""What a model's folder says of itself."""

from dataclasses import dataclass
from pathlib import Path

from workers.types import Capability, ModelFormat, Pooling


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """One model that is a folder. `weights_bytes` are of the files that are loaded, each counted once.

    `architecture` is the pipeline's class, or the network's type. `context_tokens` is the longest input that is read
    whole, `embedding_dimensions` the length of a vector.
    """

    path: Path
    format: ModelFormat
    capabilities: tuple[Capability, ...]
    architecture: str
    weights_bytes: int
    context_tokens: int | None = None
    embedding_dimensions: int | None = None
    pooling: Pooling | None = None
