"""What the fleet is made of: keys, backends, memory, limits of heat."""

from pathlib import Path

import pytest

from api.compose_fleet import _needed_bytes, engine_key, llama_backends, thermal_gates
from infra.errors import LoadFailed
from infra.settings import load_settings
from infra.types import PoolId
from tests.fakes import make_entry, make_pool
from tests.tiny_gguf import write_tiny_llama


def test_an_engine_s_key_does_not_tell_the_token() -> None:
    key = engine_key("token")
    assert key == engine_key("token") != engine_key("token2")
    assert "token" not in key
    assert len(key) == 64


def test_the_wheel_runs_on_the_processor_and_an_own_server_on_every_card(tmp_path: Path) -> None:
    assert llama_backends(load_settings()) == {"cpu"}
    own = load_settings(llama={"server_bin": tmp_path / "llama-server"})
    assert llama_backends(own) == {"cpu", "cuda", "rocm", "vulkan"}


def test_more_slots_and_more_context_need_more_memory(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    settings = load_settings(llama={"cache_ram_mib": 0})
    needs = [
        _needed_bytes(make_entry(path=path, max_instances=slots, context_tokens=context), settings)
        for slots, context in ((1, 256), (1, 1024), (4, 1024))
    ]
    assert path.stat().st_size < needs[0] < needs[1] < needs[2]
    cached = load_settings(llama={"cache_ram_mib": 7})
    assert _needed_bytes(make_entry(path=path, max_instances=1, context_tokens=256), cached) == needs[0] + 7 * 2**20


def test_a_card_s_own_limit_goes_before_the_common_one() -> None:
    spec = {"name": "cuda-1", "backend": "cuda", "temperature_limit_c": 70}
    settings = load_settings(cards={"temperature_limit_c": 80, "engine_specs": [spec]})
    pools = {PoolId(name): make_pool(name) for name in ("cuda-1", "cpu")}
    gates = thermal_gates(pools, settings.cards)
    assert {pool: gate.limit_c for pool, gate in gates.items()} == {"cuda-1": 70, "cpu": 80}


def test_weights_that_have_gone_bad_are_no_fault_of_the_request(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"garbage")
    with pytest.raises(LoadFailed, match="could not be loaded"):
        _needed_bytes(make_entry(path=path), load_settings())
