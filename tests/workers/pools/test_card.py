"""What a card has left: the smaller of what the ledger and the last measurement say."""

from dataclasses import replace
from pathlib import Path

import pytest

from infra.hardware.cards import CardReading
from infra.settings import LlamaSettings
from infra.types import EngineId
from tests.fakes import GIB, make_entry, make_pool
from workers.pools.card import slot_context_tokens

OLD, NEW = EngineId("cpu/old"), EngineId("cpu/new")


@pytest.mark.parametrize(
    ("reserve", "reserved", "loading", "measured", "free"),
    [
        (0, {}, (), None, 8),
        (1, {}, (), None, 7),
        (1, {OLD: 2}, (), None, 5),
        (1, {OLD: 2}, (), 8, 5),  # a model that is not touched yet: the ledger knows better
        (1, {OLD: 2}, (), 4, 3),  # somebody else uses the card: the measurement knows better
        (0, {OLD: 2, NEW: 3}, (NEW,), 6, 3),  # what is loading is not yet measured
        (0, {OLD: 2, NEW: 3}, (NEW,), 4, 1),
        (0, {OLD: 2}, (NEW,), 6, 6),  # a load that has been given up
        (1, {OLD: 9}, (), None, 0),
        (1, {}, (), 0, 0),
        (9, {}, (), 8, 0),
    ],
)
def test_free_bytes(
    reserve: int, reserved: dict[EngineId, int], loading: tuple[EngineId, ...], measured: int | None, free: int
) -> None:
    pool = make_pool(total_gib=8)
    pool.reserve_bytes = reserve * GIB
    pool.reserved = {engine: gib * GIB for engine, gib in reserved.items()}
    pool.loading = set(loading)
    if measured is not None:
        pool.reading = CardReading(measured * GIB, None)
    assert pool.free_bytes == free * GIB
    assert pool.view(5).free_bytes == free * GIB


def test_a_card_that_does_not_tell_its_memory_is_reckoned_by_the_ledger() -> None:
    pool = make_pool(total_gib=8)
    pool.reading = CardReading(None, 60)
    pool.reserved[OLD] = GIB
    assert pool.free_bytes == 7 * GIB


def test_the_view_has_what_the_router_asks() -> None:
    pool = make_pool("cuda-1", 2, "cuda")
    pool.unusable = "no build"
    pool.hold("card", "hot")
    view = pool.view(7)
    assert (view.pool, view.backend, view.total_bytes, view.reclaimable_bytes) == ("cuda-1", "cuda", 2 * GIB, 7)
    assert (view.unusable, view.paused, view.reserve_bytes) == ("no build", "hot", pool.reserve_bytes)


def test_who_holds_a_card_has_a_say_of_his_own() -> None:
    pool = make_pool()
    assert not pool.hold("operator", None)
    assert pool.hold("card", "90 °C")
    assert not pool.hold("card", "91 °C")
    assert pool.paused == "91 °C"
    assert pool.hold("operator", "paused")
    assert pool.paused == "91 °C; paused"
    assert pool.hold("card", None)
    assert pool.paused == "paused"
    assert pool.hold("operator", None)
    assert pool.paused is None


def test_a_launch_is_pinned_to_its_card_and_takes_the_entry_s_numbers() -> None:
    pool = make_pool("cuda-1", 2, "cuda")
    pool.card = replace(pool.card, env={"CUDA_VISIBLE_DEVICES": "GPU-1"})
    entry = make_entry(max_instances=3, context_tokens=4096)
    launch = pool.launch(NEW, entry, LlamaSettings(cache_ram_mib=7), 5)
    assert (launch.engine, launch.pool, launch.backend, launch.slots) == (NEW, "cuda-1", "cuda", 3)
    assert (launch.context_tokens, launch.threads, launch.cache_ram_mib) == (4096, 5, 7)
    assert launch.env == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    assert pool.launch(NEW, entry, LlamaSettings(threads=2), 5).threads == 2


def test_the_context_of_a_slot() -> None:
    settings = LlamaSettings(context_tokens=2048)
    assert slot_context_tokens(make_entry(), settings) == 2048
    assert slot_context_tokens(make_entry(context_tokens=512), settings) == 512
    assert slot_context_tokens(make_entry(context_tokens=9000, path=Path("/weights/x.gguf")), settings) == 9000
