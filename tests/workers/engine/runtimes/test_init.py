"""Which runtime a model has."""

import pytest

from infra.errors import LoadFailed, NotInstalled
from tests.fakes import make_entry
from workers.engine.runtimes import RUNTIMES, make_runtime
from workers.engine.runtimes.whisper import Whisper
from workers.types import Capability, ModelFormat

HEARS = make_entry(format=ModelFormat.WHISPER, capabilities=(Capability.STT,))


def test_a_format_has_its_runtime() -> None:
    assert isinstance(make_runtime(HEARS), Whisper)


def test_llama_s_format_and_none_have_no_runtime_here() -> None:
    for model_format in (ModelFormat.GGUF, ModelFormat.SERVICE):
        with pytest.raises(LoadFailed, match="there is no runtime"):
            make_runtime(make_entry(format=model_format))


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, (ModelFormat.WHISPER, Capability.STT), "not_installed_anywhere:Whisper")
    with pytest.raises(NotInstalled, match="not_installed_anywhere"):
        make_runtime(HEARS)
