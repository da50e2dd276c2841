"""Cards as pools: which are usable, and how heat and loss pause them, with readings that the test makes up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from infra.hardware.cards import Card, CardReading
from infra.hardware.thermal import ThermalGate
from infra.settings import CardsSettings
from infra.types import PoolId
from tests.fakes import GIB, make_pool
from workers.cards import card_pools, watch_cards
from workers.pools.card import CardPool

COOL = CardReading(GIB, 50)


@dataclass
class Bench:
    """One pool that is watched, what its card will say next, and how often it was asked."""

    pool: CardPool
    says: CardReading = COOL
    looks: int = 0
    beside: dict[PoolId, CardPool] = field(default_factory=dict)

    def read(self, card: Card) -> CardReading:
        if card.id == self.pool.id:
            self.looks += 1
            return self.says
        return COOL

    async def see(self, reading: CardReading) -> str | None:
        """Why the pool takes no work after the card has said this."""
        self.says = reading
        seen = self.looks
        async with asyncio.timeout(5):
            while self.looks < seen + 2:  # counted in a thread; a second look follows a whole first
                await asyncio.sleep(0.001)
        return self.pool.paused


@asynccontextmanager
async def watched(limit_c: int = 90) -> AsyncIterator[Bench]:
    bench = Bench(make_pool("cuda-1", backend="cuda"))
    bench.beside = {PoolId("cpu"): make_pool()}
    pools = {bench.pool.id: bench.pool, **bench.beside}
    gates = {pool: ThermalGate(limit_c) for pool in pools}
    task = asyncio.create_task(watch_cards(pools, bench.read, gates, 0.001))
    yield bench
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_hot_card_pauses_and_comes_back_when_it_is_cooler() -> None:
    async with watched(limit_c=90) as bench:
        assert await bench.see(CardReading(GIB, 89)) is None
        assert await bench.see(CardReading(GIB, 90)) == "90 °C, limit 90 °C"
        assert await bench.see(CardReading(GIB, 86)) == "86 °C, limit 90 °C"
        assert await bench.see(CardReading(GIB, 85)) is None
        assert bench.pool.view(0).paused is None


async def test_a_lost_card_pauses_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with watched() as bench:
        assert await bench.see(CardReading(None, None, "the driver has lost it")) == "the driver has lost it"
        assert bench.beside[PoolId("cpu")].paused is None
        assert await bench.see(COOL) is None
    said = [record.getMessage() for record in caplog.records]
    assert said == ["pool cuda-1: the driver has lost it", "pool cuda-1: takes work again"]


async def test_heat_leaves_the_operator_s_pause_alone_and_tells_who_waits(caplog: pytest.LogCaptureFixture) -> None:
    async with watched(limit_c=90) as bench:
        told: list[str | None] = []
        bench.pool.changed = lambda: told.append(bench.pool.paused)
        bench.pool.hold("operator", "paused by hand")
        assert await bench.see(CardReading(GIB, 91)) == "paused by hand; 91 °C, limit 90 °C"
        assert await bench.see(CardReading(GIB, 92)) == "paused by hand; 92 °C, limit 90 °C"
        assert await bench.see(COOL) == "paused by hand"
        assert told == ["paused by hand; 91 °C, limit 90 °C", "paused by hand"]
    assert [record.getMessage() for record in caplog.records] == [f"pool cuda-1: {words}" for words in told]


async def test_the_reading_is_what_free_memory_is_reckoned_from() -> None:
    async with watched() as bench:
        await bench.see(CardReading(3 * GIB, None))
        assert bench.pool.free_bytes == 3 * GIB


@pytest.fixture
def card() -> Callable[[str], Card]:
    return lambda backend: Card(PoolId(f"{backend}-0"), backend, "A card", None, GIB)  # type: ignore[arg-type]


def test_a_card_without_a_program_for_it_is_kept_with_what_to_do(card: Callable[[str], Card]) -> None:
    settings = CardsSettings(memory_reserve_mib=3)
    pools = card_pools((card("cpu"), card("cuda")), settings, frozenset({"cpu"}))
    assert list(pools) == ["cpu-0", "cuda-0"]
    assert pools[PoolId("cpu-0")].unusable is None
    assert pools[PoolId("cpu-0")].reserve_bytes == 3 * 2**20
    unusable = pools[PoolId("cuda-0")].unusable
    assert unusable is not None
    assert "llama.server_bin" in unusable
    assert "coderai engines build llama" in unusable
