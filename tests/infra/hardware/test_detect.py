"""The cards of machines of every kind, and cards given by hand."""

import pytest

from infra.errors import SettingsInvalid
from infra.hardware.cards import Card, CardReading
from infra.hardware.detect import detect, read_card
from infra.settings import CardsSettings, EngineSpec
from infra.types import PoolId
from tests.infra.hardware.fakes import GIB, HOST, FakeGpu, FakeNvml, FakeSys, machine

UUID = FakeGpu().uuid


def test_without_gpus_there_is_the_processor(sys: FakeSys) -> None:
    (card,) = detect(CardsSettings(), machine(sys))
    assert (card.id, card.backend, card.total_bytes) == ("cpu", "cpu", HOST.total_bytes)
    assert read_card(card, machine(sys)) == CardReading(HOST.free_bytes, None)


def test_cards_by_hand_replace_detection(sys: FakeSys) -> None:
    specs = (
        EngineSpec(name="fast", backend="cuda", env={"CUDA_VISIBLE_DEVICES": UUID}),
        EngineSpec(name="half", backend="cuda", env={"CUDA_VISIBLE_DEVICES": UUID}, memory_mib=1024),
        EngineSpec(name="slow", backend="cpu"),
    )
    here = machine(sys, FakeNvml(FakeGpu(), FakeGpu("GPU-other")))
    fast, half, slow = detect(CardsSettings(engine_specs=specs), here)
    assert (fast.id, fast.uuid, fast.total_bytes, fast.name) == ("fast", UUID, 80 * GIB, "NVIDIA H200")
    assert fast.env == {"CUDA_VISIBLE_DEVICES": UUID}
    assert (half.id, half.total_bytes) == ("half", 1 * GIB)
    assert read_card(half, here).temperature_c == 40
    assert (slow.id, slow.backend, slow.total_bytes) == ("slow", "cpu", HOST.total_bytes)


def test_a_card_by_hand_that_nothing_matches_must_say_its_memory(sys: FakeSys) -> None:
    spec = EngineSpec(name="fast", backend="vulkan", env={"GGML_VK_VISIBLE_DEVICES": "7"})
    with pytest.raises(SettingsInvalid, match="'fast' needs memory_mib"):
        detect(CardsSettings(engine_specs=(spec,)), machine(sys))
    (card,) = detect(CardsSettings(engine_specs=(spec.model_copy(update={"memory_mib": 4096}),)), machine(sys))
    assert card.total_bytes == 4 * GIB
    assert read_card(card, machine(sys)) == CardReading(None, None)


def test_a_reading_of_an_unknown_card_raises_nothing(sys: FakeSys) -> None:
    for backend in ("cuda", "rocm", "vulkan"):
        card = Card(PoolId("x"), backend, "x", None, 1)
        assert read_card(card, machine(sys)) == CardReading(None, None)


def test_this_machine_has_a_processor() -> None:
    cards = detect(CardsSettings())
    assert cards[-1].id == "cpu"
    assert cards[-1].total_bytes > 0
    assert all(reading.free_bytes is None or reading.free_bytes >= 0 for reading in map(read_card, cards))
