"""Which libraries a format needs, and the error for those that are missing."""

import importlib.util

from workers.extras import LIBRARIES, missing_libraries, not_installed
from workers.types import ModelFormat


def test_what_is_missing() -> None:
    def none(_name: str) -> None:
        return None

    def all_but_torch(name: str) -> object | None:
        return None if name == "torch" else importlib.util.find_spec("json")

    assert missing_libraries(ModelFormat.DIFFUSERS, none) == LIBRARIES[ModelFormat.DIFFUSERS]
    assert missing_libraries(ModelFormat.SENTENCE_TRANSFORMERS, all_but_torch) == ("torch",)
    assert missing_libraries(ModelFormat.GGUF, none) == ()


def test_the_error_names_the_command() -> None:
    error = not_installed(ModelFormat.DIFFUSERS, "No module named 'torch'")
    assert error.message == (
        "diffusers models need the extra 'torch', which is not installed: pip install 'coderai[torch]' "
        "(No module named 'torch')"
    )
    assert "install CoderAI again" in not_installed(ModelFormat.WHISPER, "x").message
