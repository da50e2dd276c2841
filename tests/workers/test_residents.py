"""The ledger of local models when loads, unloads and ends of processes cross each other."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from infra.errors import LoadFailed, NoRoom
from infra.settings import LlamaSettings
from infra.supervisor.types import ChildSpec
from infra.types import EngineId
from tests.fakes import GIB, FakeChildren, make_entry, make_pool
from workers.loading import Loader
from workers.pools.card import CardPool
from workers.residents import Residents
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket


class SlowToStop(FakeChildren):
    """Children that take until `let_go` to end."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()
        self.let_go.set()

    async def stop(self, name: str) -> None:
        """See `Children.stop`."""
        await self.let_go.wait()
        await super().stop(name)


class Bench(NamedTuple):
    """What a test needs."""

    residents: Residents
    children: SlowToStop
    pool: CardPool


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    children, transport = SlowToStop(), Transport()
    pool = make_pool(total_gib=2.5)
    settings = LlamaSettings(load_base_s=0.8)
    residents = Residents({pool.id: pool}, Loader(children, transport, settings, "key"), children, settings, threads=1)
    residents.adopt()
    yield Bench(residents, children, pool)
    children.let_go.set()
    await residents.close()
    await children.close()
    await transport.close()


M = make_entry()


async def test_a_model_that_comes_back_while_it_leaves_keeps_its_place_in_the_ledger(bench: Bench) -> None:
    residents, children, pool = bench
    await residents.load(M, pool.id, 1 * GIB)
    (engine,) = residents.of(M.name)
    children.let_go.clear()
    residents.unload(engine)
    again = residents.load(M, pool.id, 2 * GIB)  # there is room: what it leaves is its own
    await asyncio.sleep(0.05)
    children.let_go.set()
    await again
    assert pool.reserved == {"cpu/m": 2 * GIB}
    assert [engine.state for engine in residents.of(M.name)] == ["ready"]


async def test_what_a_leaving_model_frees_is_given_once(bench: Bench) -> None:
    residents, children, pool = bench
    await residents.load(M, pool.id, 2 * GIB)
    children.let_go.clear()
    residents.unload(residents.of(M.name)[0])
    assert residents.reclaimable_bytes(pool.id) == 2 * GIB
    first = residents.load(make_entry("a"), pool.id, 2 * GIB)
    with pytest.raises(NoRoom):
        residents.load(make_entry("b"), pool.id, 1 * GIB)
    await asyncio.sleep(0.05)
    assert children.started == ["cpu/m"]
    children.let_go.set()
    await first
    assert children.started == ["cpu/m", "cpu/a"]
    assert pool.reserved == {"cpu/a": 2 * GIB}


async def test_a_load_that_is_called_off_does_not_call_off_the_leaving_it_waits_for(bench: Bench) -> None:
    residents, children, pool = bench
    await residents.load(M, pool.id, 2 * GIB)
    (engine,) = residents.of(M.name)
    engine.in_flight = 1
    leaving = residents.unload(engine, when_idle=True)
    residents.load(M, pool.id, 2 * GIB)
    await asyncio.sleep(0.05)
    last = residents.unload(residents.of(M.name)[0])
    await asyncio.sleep(0.05)
    assert not leaving.done()
    assert children.stopped == []
    assert pool.reserved == {"cpu/m": 2 * GIB}
    engine.in_flight = 0
    await asyncio.gather(leaving, last)
    assert pool.reserved == {}
    assert children.states() == {}


async def test_a_load_after_one_that_was_called_off_is_still_a_first_load(bench: Bench) -> None:
    residents, children, pool = bench
    children.slow_s = 0.3
    called_off = residents.load(M, pool.id, GIB)
    await asyncio.sleep(0.05)
    children.let_go.clear()
    residents.unload(residents.of(M.name)[0])
    second = residents.load(M, pool.id, GIB)
    await asyncio.sleep(0.05)
    children.let_go.set()
    await asyncio.wait({called_off})
    assert pool.loading == {EngineId("cpu/m")}  # no measurement has seen the second one yet
    await second
    assert [engine.state for engine in residents.of(M.name)] == ["ready"]
    assert pool.loading == set()


async def test_a_load_of_what_is_there_begins_nothing(bench: Bench) -> None:
    residents, children, pool = bench
    await residents.load(M, pool.id, GIB)
    (engine,) = residents.of(M.name)
    await residents.load(M, pool.id, GIB)
    assert residents.of(M.name) == [engine]
    assert children.started == ["cpu/m"]


async def test_a_busy_model_may_finish_before_it_leaves(bench: Bench) -> None:
    residents, children, pool = bench
    await residents.load(M, pool.id, GIB)
    (engine,) = residents.of(M.name)
    engine.in_flight = 1
    leaving = residents.unload(engine, when_idle=True)
    assert residents.of(M.name) == []
    await asyncio.sleep(0.15)
    assert children.stopped == []
    assert pool.reserved == {"cpu/m": GIB}
    engine.in_flight = 0
    await leaving
    assert children.stopped == ["cpu/m"]
    assert pool.reserved == {}


async def test_a_restarted_engine_that_never_gets_ready_is_ended(bench: Bench) -> None:
    residents, children, pool = bench
    await residents.load(M, pool.id, GIB)
    children.frozen.add("cpu/m")
    await children.kill("cpu/m")
    await children.restart("cpu/m")
    async with asyncio.timeout(10):
        while residents.of(M.name) or pool.reserved:
            await asyncio.sleep(0.02)
    assert children.states() == {}
    children.frozen.clear()
    await residents.load(M, pool.id, GIB)


async def test_a_given_up_engine_makes_room_though_its_model_is_kept(bench: Bench) -> None:
    residents, children, pool = bench
    kept = make_entry("kept", keep_resident=True)
    await residents.load(kept, pool.id, 2 * GIB)
    with pytest.raises(NoRoom):
        residents.load(M, pool.id, 2 * GIB)
    children.quarantine("cpu/kept")
    await asyncio.sleep(0.02)
    await residents.load(M, pool.id, 2 * GIB)
    assert children.stopped == ["cpu/kept"]


async def test_a_child_whose_note_no_one_understands_is_stopped_at_adoption(bench: Bench) -> None:
    residents, children, pool = bench
    await residents.load(M, pool.id, GIB)
    spec = children.specs["cpu/m"]
    children.specs["cpu/m"] = spec.model_copy(update={"note": {"engine": "cpu/m", "of": "another version"}})
    await children.kill("cpu/m")
    await children.restart("cpu/m")
    found = Residents({pool.id: pool}, residents._loader, children, LlamaSettings(), threads=1)
    found.adopt()
    await asyncio.sleep(0.05)
    assert found.engines == {}
    assert children.stopped == ["cpu/m"]


async def test_a_broken_load_leaves_nothing(bench: Bench) -> None:
    residents, children, pool = bench
    children.broken.add("cpu/m")
    with pytest.raises(LoadFailed):
        await residents.load(M, pool.id, GIB)
    assert (pool.reserved, pool.loading, residents.engines, children.states()) == ({}, set(), {}, {})


async def test_a_restarted_front_leaves_children_alone_that_are_no_engines(bench: Bench) -> None:
    await bench.children.start(ChildSpec(name="prefect", argv=("x",), note={"spec": "1"}))
    await bench.children.start(
        ChildSpec(name="cpu/old", argv=("x",), secret_env={"LLAMA_API_KEY": "k"}, note={"none": "of ours"})
    )
    bench.residents.adopt()
    async with asyncio.timeout(5):
        while "cpu/old" in bench.children.states():
            await asyncio.sleep(0.005)
    assert bench.children.stopped == ["cpu/old"]
    assert list(bench.children.states()) == ["prefect"]
