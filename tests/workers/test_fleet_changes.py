"""The fleet when the catalogue changes under it: what runs may finish, nobody new gets the old entry."""

import asyncio

import pytest

from infra.errors import ModelNotFound
from tests.fakes import FakeChildren, make_entry
from tests.workers.conftest import MakeFleet, acquire
from workers.types import ModelEntry, ModelFormat

pytestmark = pytest.mark.enable_socket


async def test_a_model_that_changes_while_it_answers_may_finish(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet, entry = make_fleet(), make_entry()
    lease = await acquire(fleet, entry)
    fleet.forget(entry.name)
    changed = make_entry(max_instances=1)
    asking = asyncio.create_task(acquire(fleet, changed))
    await asyncio.sleep(0.1)
    assert children.stopped == []
    assert not asking.done()
    lease.release()
    second = await asking
    assert children.stopped == ["cpu/m"]
    assert second.engine.slots == 1
    second.release()


@pytest.mark.parametrize("wait", ["load", "slot"])
async def test_who_waited_while_the_model_changed_gets_it_as_it_is_now(
    make_fleet: MakeFleet, children: FakeChildren, wait: str
) -> None:
    fleet, old, new = make_fleet(), make_entry(max_instances=1), make_entry(max_instances=7)
    held = await acquire(fleet, old) if wait == "slot" else None
    children.slow_s = 0.2 if wait == "load" else 0.0
    waiting = asyncio.create_task(acquire(fleet, old))
    await asyncio.sleep(0.05)
    fleet.current = lambda _entry: new
    fleet.forget(old.name)
    if held is not None:
        held.release()
    lease = await waiting
    assert lease.engine.entry is new
    assert [engine.entry for engine in fleet.engines()] == [new]
    lease.release()


async def test_who_waited_for_a_model_that_has_gone_is_told(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet, entry = make_fleet(), make_entry()
    children.slow_s = 0.2
    waiting = asyncio.create_task(acquire(fleet, entry))
    await asyncio.sleep(0.05)

    def gone(_entry: ModelEntry) -> ModelEntry:
        raise ModelNotFound("Model 'm' is not available")

    fleet.current = gone
    fleet.forget(entry.name)
    with pytest.raises(ModelNotFound):
        await waiting
    assert fleet.engines() == []


async def test_a_far_service_that_changes_serves_nobody_at_its_old_address(
    make_fleet: MakeFleet, children: FakeChildren
) -> None:
    fleet = make_fleet()
    (await acquire(fleet, make_entry())).release()
    port = children.states()["cpu/m"].port
    row = {"path": None, "format": ModelFormat.SERVICE, "max_instances": 1}
    old = make_entry("far", service_url=f"http://127.0.0.1:{port}/old", **row)
    new = make_entry("far", service_url=f"http://127.0.0.1:{port}/new", **row)
    held = await acquire(fleet, old)
    waiting = asyncio.create_task(acquire(fleet, old))
    await asyncio.sleep(0.02)
    fleet.current = lambda _entry: new
    fleet.forget(old.name)
    lease = await waiting
    assert lease.engine.base_url.endswith("/new/v1")
    held.release()
    assert (held.engine.in_flight, lease.engine.in_flight) == (0, 1)
    late = asyncio.create_task(acquire(fleet, old))  # it looked the model up a moment before the change
    await asyncio.sleep(0.02)
    lease.release()
    assert (await late).engine.base_url.endswith("/new/v1")


@pytest.mark.parametrize("now", [make_entry(max_instances=1), None], ids=["changed", "gone"])
async def test_a_restarted_front_takes_no_engine_of_a_model_that_has_changed(
    make_fleet: MakeFleet, children: FakeChildren, now: ModelEntry | None
) -> None:
    before, entry = make_fleet(), make_entry()
    (await acquire(before, entry)).release()
    after = make_fleet()
    after.adopt({"m": entry}.get)
    assert [engine.entry for engine in after.engines()] == [entry]
    after.adopt({"m": now}.get)
    assert after.engines() == []
    async with asyncio.timeout(2):
        while children.states():
            await asyncio.sleep(0.01)
