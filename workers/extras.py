"""Libraries that only some models need, and the extra of the package that brings them."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from infra.errors import NotInstalled
from workers.types import ModelFormat

LIBRARIES: Final[dict[ModelFormat, tuple[str, ...]]] = {
    ModelFormat.DIFFUSERS: ("torch", "transformers", "diffusers", "accelerate", "peft"),
    ModelFormat.SENTENCE_TRANSFORMERS: ("torch", "transformers", "sentence_transformers"),
}
"""By the format of the models that need them: names to import, all of them in the extra `torch`."""
INSTALL: Final = "pip install 'coderai[torch]'"
"""The command that brings them."""

Find = Callable[[str], object | None]
"""`importlib.util.find_spec`: says whether a library is there, without importing it."""


def missing_libraries(model_format: ModelFormat, find: Find = find_spec) -> tuple[str, ...]:
    """What a format's models need and this Python has not."""
    return tuple(name for name in LIBRARIES.get(model_format, ()) if find(name) is None)


def not_installed(model_format: ModelFormat, reason: object) -> NotInstalled:
    """The error for a library that cannot be imported, with the command that brings it."""
    if model_format in LIBRARIES:
        return NotInstalled(
            f"{model_format} models need the extra 'torch', which is not installed: {INSTALL} ({reason})"
        )
    return NotInstalled(
        f"{model_format} models need a library that cannot be imported ({reason}): install CoderAI again, whole"
    )
