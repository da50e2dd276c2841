"""How much memory an engine process is admitted with."""

from pathlib import Path
from typing import Any

import pytest

from infra.errors import LoadFailed
from infra.settings import LlamaSettings
from tests.fakes import make_entry
from tests.tiny_gguf import write_tiny_llama
from workers.footprint import needed_bytes
from workers.types import Capability, ModelFormat


def test_more_slots_and_more_context_need_more_memory(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    settings = LlamaSettings(cache_ram_mib=0)
    needs = [
        needed_bytes(make_entry(path=path, max_instances=slots, context_tokens=context), settings)
        for slots, context in ((1, 256), (1, 1024), (4, 1024))
    ]
    assert path.stat().st_size < needs[0] < needs[1] < needs[2]
    cached = LlamaSettings(cache_ram_mib=7)
    assert needed_bytes(make_entry(path=path, max_instances=1, context_tokens=256), cached) == needs[0] + 7 * 2**20


def test_weights_that_have_gone_bad_are_no_fault_of_the_request(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"garbage")
    with pytest.raises(LoadFailed, match="could not be loaded"):
        needed_bytes(make_entry(path=path), LlamaSettings())


def test_another_runtime_takes_its_base_its_weights_and_a_share_for_each_request() -> None:
    def needed(**fields: Any) -> int:
        return needed_bytes(
            make_entry(format=ModelFormat.WHISPER, capabilities=(Capability.STT,), **fields), LlamaSettings()
        )

    one = needed(weights_bytes=1000, max_instances=1)
    assert needed(weights_bytes=1 << 30, max_instances=1) - one > 1 << 30
    assert needed(weights_bytes=1000, max_instances=3) - one == 2 * (512 << 20)


@pytest.mark.parametrize("model_format", [ModelFormat.SENTENCE_TRANSFORMERS, ModelFormat.DIFFUSERS])
def test_a_folder_takes_its_weights_and_its_libraries(model_format: ModelFormat) -> None:
    entry = make_entry(format=model_format, weights_bytes=2 << 30, max_instances=1)
    assert needed_bytes(entry, LlamaSettings()) > (2 << 30) + (460 << 20)
