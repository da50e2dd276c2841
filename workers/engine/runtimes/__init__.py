"""The runtimes of the engine process: one module each, none imported before its model is to be loaded."""

import importlib
from typing import Final, cast

from infra.errors import LoadFailed
from workers.engine.runtimes.protocol import Runtime
from workers.extras import not_installed
from workers.types import Capability, ModelEntry, ModelFormat

RUNTIMES: Final[dict[tuple[ModelFormat, Capability], str]] = {
    (ModelFormat.WHISPER, Capability.STT): "workers.engine.runtimes.whisper:Whisper",
    (ModelFormat.PIPER, Capability.TTS): "workers.engine.runtimes.piper:Piper",
    (ModelFormat.RAPIDOCR, Capability.OCR): "workers.engine.runtimes.ocr:Ocr",
    (ModelFormat.DIFFUSERS, Capability.IMAGES): "workers.engine.runtimes.images:Images",
    (ModelFormat.DIFFUSERS, Capability.VIDEO): "workers.engine.runtimes.video:Video",
    (ModelFormat.SENTENCE_TRANSFORMERS, Capability.EMBEDDINGS): "workers.engine.runtimes.sentences:Embedder",
    (ModelFormat.SENTENCE_TRANSFORMERS, Capability.RERANK): "workers.engine.runtimes.sentences:Reranker",
}
"""Where the runtime of a format is, by a capability of the model: `module:class`. Whatever is not here is llama.cpp's,
or nobody's."""


def make_runtime(entry: ModelEntry) -> Runtime:
    """The runtime of a model's format, with no model in it; imports its library.

    Raises:
        LoadFailed: there is none.
        NotInstalled: its library cannot be imported.
    """
    places = (RUNTIMES.get((entry.format, capability)) for capability in entry.capabilities)
    place = next(filter(None, places), None)
    if place is None:
        raise LoadFailed(f"there is no runtime for {entry.format} models that do {', '.join(entry.capabilities)}")
    module, _, name = place.partition(":")
    try:
        return cast(Runtime, getattr(importlib.import_module(module), name)())
    except ImportError as error:
        raise not_installed(entry.format, error) from error
