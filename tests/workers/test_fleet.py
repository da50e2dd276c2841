"""The fleet's ledger: slots, queues, cold loads, room, crashes; against servers on real sockets."""

import asyncio

import pytest

from infra.errors import LoadFailed, ModelLoading, NoRoom, Nowhere, QueueFull, ServiceDown
from infra.types import EngineId, ModelName
from tests.fakes import GIB, FakeChildren, make_entry, make_pool
from tests.workers.conftest import MakeFleet, acquire, demand
from workers.types import Capability, Demand, ModelEntry, ModelFormat

pytestmark = pytest.mark.enable_socket


async def test_a_cold_model_is_loaded_once_for_all_who_wait(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet, entry = make_fleet(), make_entry()
    leases = await asyncio.gather(*(acquire(fleet, entry) for _ in range(3)))
    assert children.started == ["cpu/m"]
    assert {lease.engine.id for lease in leases} == {"cpu/m"}
    assert leases[0].engine.in_flight == 3


async def test_slots_are_handed_to_whoever_waited_longest(make_fleet: MakeFleet) -> None:
    fleet, entry = make_fleet(), make_entry(max_instances=1)
    first = await acquire(fleet, entry)
    order: list[str] = []

    async def wait(name: str) -> None:
        lease = await acquire(fleet, entry)
        order.append(name)
        await asyncio.sleep(0)
        lease.release()

    waiters = [asyncio.create_task(wait(name)) for name in ("a", "b", "c")]
    await asyncio.sleep(0.05)
    assert fleet.waiting(ModelName("m")) == 3
    first.release()
    await asyncio.gather(*waiters)
    assert order == ["a", "b", "c"]
    assert first.engine.in_flight == 0


async def test_a_full_queue_refuses_with_a_time_to_come_back(make_fleet: MakeFleet) -> None:
    fleet, entry = make_fleet(), make_entry(max_instances=1, queue_max_waiting=1)
    lease = await acquire(fleet, entry)
    waiter = asyncio.create_task(acquire(fleet, entry))
    await asyncio.sleep(0.02)
    with pytest.raises(QueueFull) as caught:
        await acquire(fleet, entry)
    assert caught.value.retry_after_s is not None
    lease.release()
    (await waiter).release()


async def test_a_waiter_that_leaves_takes_no_slot_along(make_fleet: MakeFleet) -> None:
    fleet, entry = make_fleet(), make_entry(max_instances=1)
    lease = await acquire(fleet, entry)
    early, late = (asyncio.create_task(acquire(fleet, entry)) for _ in range(2))
    await asyncio.sleep(0.02)
    early.cancel()
    lease.release()
    late.cancel()  # in the very moment in which the slot is handed to it
    await asyncio.gather(early, late, return_exceptions=True)
    assert lease.engine.in_flight == 0
    assert fleet.waiting(ModelName("m")) == 0


async def test_waiting_for_a_slot_ends_in_time(make_fleet: MakeFleet) -> None:
    fleet, entry = make_fleet(queue_wait_s=0.05), make_entry(max_instances=1)
    lease = await acquire(fleet, entry)
    with pytest.raises(QueueFull, match="no free slot in time"):
        await acquire(fleet, entry)
    lease.release()
    assert lease.engine.in_flight == 0


async def test_a_slow_load_answers_loading_and_goes_on(make_fleet: MakeFleet, children: FakeChildren) -> None:
    children.slow_s = 0.5
    fleet, entry = make_fleet(cold_wait_s=0.1), make_entry()
    with pytest.raises(ModelLoading, match="the load goes on") as caught:
        await acquire(fleet, entry)
    assert caught.value.retry_after_s
    async with asyncio.timeout(5):
        while True:
            try:
                lease = await acquire(fleet, entry)
                break
            except ModelLoading:
                continue
    assert children.started == ["cpu/m"]
    lease.release()


async def test_a_load_goes_on_though_its_client_left(make_fleet: MakeFleet, children: FakeChildren) -> None:
    children.slow_s = 0.3
    fleet, entry = make_fleet(), make_entry()
    asking = asyncio.create_task(acquire(fleet, entry))
    await asyncio.sleep(0.05)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    (await acquire(fleet, entry)).release()
    assert children.started == ["cpu/m"]


async def test_a_failed_load_says_why_and_blocks_nothing(make_fleet: MakeFleet, children: FakeChildren) -> None:
    children.broken.add("cpu/bad")
    pool = make_pool()
    fleet, bad = make_fleet(pool), make_entry("bad")
    with pytest.raises(LoadFailed, match="not a GGUF file"):
        await acquire(fleet, bad)
    assert pool.reserved == {}
    (await acquire(fleet, make_entry())).release()
    children.broken.clear()
    (await acquire(fleet, bad)).release()


async def test_the_least_recently_used_idle_model_makes_room(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet = make_fleet(make_pool(total_gib=2.5))
    for name in ("old", "new"):
        (await acquire(fleet, make_entry(name))).release()
    (await acquire(fleet, make_entry("third"))).release()
    assert children.stopped == ["cpu/old"]
    assert sorted(children.states()) == ["cpu/new", "cpu/third"]


async def test_a_busy_model_is_never_unloaded(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet = make_fleet(make_pool(total_gib=1.5))
    busy = await acquire(fleet, make_entry("busy"))
    with pytest.raises(NoRoom, match="no room") as caught:
        await acquire(fleet, make_entry("other"))
    assert not isinstance(caught.value, Nowhere), "there will be, once that request has finished"
    assert children.stopped == []
    busy.release()
    (await acquire(fleet, make_entry("other"))).release()
    assert children.stopped == ["cpu/busy"]


async def test_a_model_kept_resident_makes_no_room(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(make_pool(total_gib=1.5))
    (await acquire(fleet, make_entry("kept", keep_resident=True))).release()
    with pytest.raises(NoRoom):
        await acquire(fleet, make_entry("other"))


async def test_a_crashed_engine_comes_back_and_leaks_no_slot(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet, entry = make_fleet(), make_entry(max_instances=1)
    lost = await acquire(fleet, entry)
    await children.kill("cpu/m")
    await asyncio.sleep(0.02)
    waiting = asyncio.create_task(acquire(fleet, entry))
    await asyncio.sleep(0.02)
    lost.release()
    await children.restart("cpu/m")
    lease = await waiting
    assert lease.incarnation == 2
    assert lease.engine.in_flight == 1
    lease.release()
    assert lease.engine.in_flight == 0


async def test_a_step_goes_to_the_restarted_engine_but_not_to_the_one_that_failed(
    make_fleet: MakeFleet, children: FakeChildren
) -> None:
    fleet, entry = make_fleet(), make_entry()
    lost = await acquire(fleet, entry)
    await children.kill("cpu/m")
    lost.release()
    again = asyncio.create_task(fleet.acquire(demand(entry), entry, frozenset({(lost.engine.id, lost.incarnation)})))
    await asyncio.sleep(0.05)
    assert not again.done()
    await children.restart("cpu/m")
    lease = await again
    assert lease.incarnation == 2
    lease.release()


async def test_a_quarantined_engine_refuses_until_it_is_loaded_again(
    make_fleet: MakeFleet, children: FakeChildren
) -> None:
    fleet, entry = make_fleet(), make_entry()
    (await acquire(fleet, entry)).release()
    children.quarantine("cpu/m")
    await asyncio.sleep(0.02)
    with pytest.raises(Nowhere, match="given up after repeated crashes: signal 6") as caught:
        await acquire(fleet, entry)
    assert (caught.value.code, caught.value.retry_after_s) == ("no_room", 10)
    await fleet.load(entry)
    (await acquire(fleet, entry)).release()


async def test_a_restarted_front_finds_its_engines(make_fleet: MakeFleet, children: FakeChildren) -> None:
    before, entry = make_fleet(), make_entry()
    (await acquire(before, entry)).release()
    after = make_fleet()
    lease = await acquire(after, entry)
    assert children.started == ["cpu/m"]
    assert lease.engine.memory_bytes == GIB
    lease.release()


async def test_a_conversation_returns_to_its_engine(make_fleet: MakeFleet) -> None:
    fleet, entry = make_fleet(make_pool("a"), make_pool("b")), make_entry()
    pinned = make_entry(engine="b")
    (await acquire(fleet, entry)).release()  # on a
    await fleet.residents.load(pinned, pinned.engine, GIB)  # type: ignore[arg-type]
    (await fleet.acquire(Demand(entry.name, Capability.CHAT, "talk", pinned.engine), entry)).release()
    lease = await acquire(fleet, entry, "talk")
    assert lease.engine.id == "b/m"
    assert "cache" in lease.placement.reason
    lease.release()


async def test_unload_refuses_while_busy(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet, entry = make_fleet(), make_entry()
    lease = await acquire(fleet, entry)
    with pytest.raises(NoRoom, match="answering 1 requests"):
        await fleet.unload(entry.name)
    lease.release()
    assert await fleet.unload(entry.name) == 1
    assert children.states() == {}


async def test_a_dead_service_fails_at_once_and_serves_when_it_returns(
    make_fleet: MakeFleet, children: FakeChildren, unused_tcp_port: int
) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    far = make_entry("far", path=None, format=ModelFormat.SERVICE, service_url=url)
    fleet = make_fleet()
    with pytest.raises(ServiceDown, match=f"^configured service_url {url} is not answering its health check$"):
        await acquire(fleet, far)
    entry = make_entry()
    (await acquire(fleet, entry)).release()
    port = children.states()["cpu/m"].port
    alive = make_entry("far", path=None, format=ModelFormat.SERVICE, service_url=f"http://127.0.0.1:{port}/v1/")
    fleet.forget(ModelName("far"))
    lease = await acquire(fleet, alive)
    assert lease.engine.base_url == f"http://127.0.0.1:{port}/v1"
    assert lease.engine.id == EngineId(f"service:127.0.0.1:{port}/far")
    lease.release()


async def test_a_draining_fleet_gives_slots_to_what_has_begun(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.draining = True
    (await acquire(fleet, make_entry())).release()


async def test_a_preview_takes_and_loads_nothing(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet, entry = make_fleet(), make_entry()
    placement = await fleet.preview(demand(entry), entry)
    assert (placement.action, placement.pool) == ("load", "cpu")
    assert children.started == []


async def test_two_who_ask_while_the_first_is_still_measuring_load_once(
    make_fleet: MakeFleet, children: FakeChildren
) -> None:
    fleet, entry = make_fleet(), make_entry()
    measured = iter([0.0, 0.0, 0.0, 0.6])

    async def needed_bytes(_entry: ModelEntry) -> int:
        await asyncio.sleep(next(measured, 0.0))
        return GIB

    fleet._needed_bytes = needed_bytes
    first, second = await asyncio.gather(acquire(fleet, entry), acquire(fleet, entry))
    assert children.started == ["cpu/m"]
    assert first.engine is second.engine
    assert first.engine.in_flight == 2


async def test_a_model_that_is_unloaded_while_it_loads_is_no_bug(make_fleet: MakeFleet, children: FakeChildren) -> None:
    children.slow_s = 0.3
    fleet, entry = make_fleet(), make_entry()
    loading = asyncio.create_task(fleet.load(entry))
    await asyncio.sleep(0.05)
    await fleet.unload(entry.name)
    with pytest.raises(NoRoom, match="unloaded"):
        await loading
