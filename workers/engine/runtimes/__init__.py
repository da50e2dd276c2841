"""The runtimes of the engine process: one module each, none imported before its model is to be loaded."""

import importlib
from typing import cast

from infra.errors import LoadFailed
from workers.engine.runtimes.protocol import Runtime
from workers.types import ModelFormat

RUNTIMES: dict[ModelFormat, str] = {
    ModelFormat.WHISPER: "workers.engine.runtimes.whisper:Whisper",
    ModelFormat.RAPIDOCR: "workers.engine.runtimes.ocr:Ocr",
}
"""Where the runtime of a format is: `module:class`. Whatever is not here is llama.cpp's, or nobody's."""


def make_runtime(model_format: ModelFormat) -> Runtime:
    """The runtime of a format, with no model in it; imports its library.

    Raises:
        LoadFailed: there is none, or its library is not installed or cannot be used.
    """
    place = RUNTIMES.get(model_format)
    if place is None:
        raise LoadFailed(f"there is no runtime for {model_format} models")
    module, _, name = place.partition(":")
    try:
        return cast(Runtime, getattr(importlib.import_module(module), name)())
    except ImportError as error:
        raise LoadFailed(f"{model_format} models need a library that cannot be imported: {error}") from error
