"""Which model can run on which pool: one table, for routing, saving and showing alike."""

from workers.types import ModelEntry, ModelFormat, PoolView

_BACKENDS: dict[ModelFormat, tuple[str, ...]] = {
    ModelFormat.GGUF: ("cuda", "rocm", "vulkan", "cpu"),
    ModelFormat.WHISPER: ("cpu",),
    ModelFormat.RAPIDOCR: ("cpu",),
    ModelFormat.PIPER: ("cpu",),
    ModelFormat.DIFFUSERS: ("cuda", "rocm", "cpu"),
    ModelFormat.SENTENCE_TRANSFORMERS: ("cuda", "rocm", "cpu"),
    ModelFormat.SERVICE: ("service",),
}


def misfit(entry: ModelEntry, pool: PoolView) -> str | None:
    """Why the model cannot run on the pool, or None if it can."""
    if pool.backend not in _BACKENDS[entry.format]:
        if pool.backend == "service":
            return "a far service serves only the models that name it"
        return f"{entry.format.value} models do not run on {pool.backend} cards"
    if pool.unusable is not None:
        return pool.unusable
    return None
