"""What the fleet is made of: keys, backends, memory, limits of heat."""

from pathlib import Path

from api.compose_fleet import engine_key, llama_backends, thermal_gates
from infra.settings import load_settings
from infra.types import PoolId
from tests.fakes import make_pool


def test_an_engine_s_key_does_not_tell_the_token() -> None:
    key = engine_key("token")
    assert key == engine_key("token") != engine_key("token2")
    assert "token" not in key
    assert len(key) == 64


def test_the_wheel_runs_on_the_processor_and_an_own_server_on_every_card(tmp_path: Path) -> None:
    assert llama_backends(load_settings()) == {"cpu"}
    own = load_settings(llama={"server_bin": tmp_path / "llama-server"})
    assert llama_backends(own) == {"cpu", "cuda", "rocm", "vulkan"}


def test_a_card_s_own_limit_goes_before_the_common_one() -> None:
    spec = {"name": "cuda-1", "backend": "cuda", "temperature_limit_c": 70}
    settings = load_settings(cards={"temperature_limit_c": 80, "engine_specs": [spec]})
    pools = {PoolId(name): make_pool(name) for name in ("cuda-1", "cpu")}
    gates = thermal_gates(pools, settings.cards)
    assert {pool: gate.limit_c for pool, gate in gates.items()} == {"cuda-1": 70, "cpu": 80}
