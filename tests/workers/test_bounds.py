"""Pauses and limits that an operator sets, at the fleet: who is refused, who waits, and that nobody is forgotten."""

import asyncio
import random
from collections.abc import Callable

import pytest

from infra.errors import NoCapacity, NoRoom, QueueFull
from infra.types import HEAD_POOL, ModelName, PoolId
from tests.fakes import FakeChildren, make_entry, make_pool
from tests.workers.conftest import MakeFleet, acquire, demand
from workers.bounds import POOL_PAUSED, Order, Orders
from workers.fleet import Fleet
from workers.live import Lease
from workers.types import ModelEntry, ModelFormat

pytestmark = pytest.mark.enable_socket

CPU = PoolId("cpu")
PAUSED = "paused in the flow-run UI (work pool 'cpu')"


def order(fleet: Fleet, pool: PoolId = CPU, *, paused: str | None = None, limit: int | None = None) -> None:
    """The operator wants this for one pool, and nothing for others."""
    fleet.bounds.obey(Orders({pool: Order(paused, limit)}))


async def ready(fleet: Fleet, *names: str, **fields: object) -> list[ModelEntry]:
    """Models that are loaded."""
    entries = [make_entry(name, **fields) for name in names]
    for entry in entries:
        (await acquire(fleet, entry)).release()
    return entries


async def waiting(fleet: Fleet, entry: ModelEntry) -> asyncio.Task[Lease]:
    """One more who waits for the model."""
    before = fleet.waiting(entry.name)
    task = asyncio.create_task(acquire(fleet, entry))
    async with asyncio.timeout(5):
        while fleet.waiting(entry.name) == before:
            await asyncio.sleep(0)
    return task


async def test_a_paused_pool_refuses_with_the_reason_and_what_runs_goes_on(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    (entry,) = await ready(fleet, "m")
    running = await acquire(fleet, entry)
    order(fleet, paused=PAUSED)
    with pytest.raises(NoRoom, match="paused in the flow-run UI") as caught:
        await acquire(fleet, entry)
    assert caught.value.retry_after_s
    assert caught.value.code == POOL_PAUSED, "jobs wait for its end"
    assert (await fleet.preview(demand(entry), entry)).passed_over[0].reason == PAUSED
    assert running.engine.in_flight == 1
    running.release()
    assert running.engine.in_flight == 0
    fleet.bounds.obey(Orders())
    assert not fleet.bounds.active
    (await acquire(fleet, entry)).release()


async def test_a_model_that_is_not_loaded_goes_to_another_pool(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet, entry = make_fleet(make_pool("a"), make_pool("b")), make_entry()
    order(fleet, PoolId("a"), paused="closed")
    placement = await fleet.preview(demand(entry), entry)
    assert [(over.candidate, over.reason) for over in placement.passed_over] == [("a", "closed")]
    (await acquire(fleet, entry)).release()
    assert children.started == ["b/m"]


async def test_who_waits_when_the_pool_is_paused_is_refused_or_goes_elsewhere(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(make_pool("a"), make_pool("b"))
    (entry,) = await ready(fleet, "m", max_instances=1)
    (pinned,) = await ready(fleet, "p", max_instances=1, engine="a")
    held = [await acquire(fleet, entry), await acquire(fleet, pinned)]
    assert held[0].engine.pool == "a"
    free, bound = await waiting(fleet, entry), await waiting(fleet, pinned)
    order(fleet, PoolId("a"), paused=PAUSED)
    with pytest.raises(NoRoom, match="paused"):
        await bound
    elsewhere = await free
    assert elsewhere.engine.pool == "b"
    for lease in (*held, elsewhere):
        lease.release()
    assert [engine.in_flight for engine in fleet.engines()] == [0, 0, 0]


async def test_a_paused_pool_s_free_slots_go_to_nobody(make_fleet: MakeFleet) -> None:
    """The model is on another card as well, where somebody waits for it."""
    fleet = make_fleet(make_pool("a"), make_pool("b"))
    entry = make_entry(max_instances=1)
    first = await acquire(fleet, entry)
    order(fleet, first.engine.pool, paused=PAUSED)
    second = await acquire(fleet, entry)
    third = await waiting(fleet, entry)
    first.release()
    await asyncio.sleep(0.02)
    assert not third.done()
    fleet.bounds.obey(Orders())
    lease = await third
    assert lease.engine is first.engine
    lease.release()
    second.release()


async def test_heat_and_the_operator_each_have_their_say(make_fleet: MakeFleet) -> None:
    pool = make_pool()
    fleet = make_fleet(pool)
    (entry,) = await ready(fleet, "m", max_instances=1)
    held = await acquire(fleet, entry)
    order(fleet, paused=PAUSED)
    pool.hold("card", "91 °C, limit 90 °C")
    pool.changed()
    assert pool.paused == f"{PAUSED}; 91 °C, limit 90 °C"
    fleet.bounds.obey(Orders())
    with pytest.raises(NoRoom, match=r"cpu/m: 91 °C, limit 90 °C$"):
        await acquire(fleet, entry)
    order(fleet, paused=PAUSED)
    pool.hold("card", None)
    pool.changed()
    with pytest.raises(NoRoom, match="paused in the flow-run UI"):
        await acquire(fleet, entry)
    fleet.bounds.obey(Orders())
    held.release()
    (await acquire(fleet, entry)).release()


async def test_a_limit_bounds_all_models_of_the_pool_and_serves_them_in_turn(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    one, two = await ready(fleet, "one", "two")
    order(fleet, limit=1)
    held = await acquire(fleet, one)
    placement = await fleet.preview(demand(two), two)
    assert (placement.action, "does 1 at once" in placement.reason) == ("queue", True)
    line = [await waiting(fleet, entry) for entry in (two, one, one, two, one)]
    for index, task in enumerate(line):
        held.release()
        held = await task
        assert sum(engine.in_flight for engine in fleet.engines()) == 1
        assert not any(later.done() for later in line[index + 1 :])
    held.release()
    assert sum(engine.in_flight for engine in fleet.engines()) == 0


async def test_a_limit_over_which_the_model_s_queue_is_full_refuses(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(queue_wait_s=0.05)
    (entry,) = await ready(fleet, "m", queue_max_waiting=1)
    order(fleet, limit=1)
    held = await acquire(fleet, entry)
    waiter = await waiting(fleet, entry)
    with pytest.raises(QueueFull, match="waiting requests already"):
        await acquire(fleet, entry)
    with pytest.raises(QueueFull, match="no free slot in time"):
        await waiter
    held.release()


async def test_a_limit_that_is_raised_or_lifted_lets_in_who_waits(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    (entry,) = await ready(fleet, "m", max_instances=4)
    order(fleet, limit=1)
    held = [await acquire(fleet, entry)]
    tasks = [await waiting(fleet, entry) for _ in range(4)]
    order(fleet, limit=2)
    held.append(await tasks[0])
    assert fleet.waiting(entry.name) == 3
    order(fleet, limit=None)
    held += [await tasks[1], await tasks[2]]
    await asyncio.sleep(0.01)
    assert not tasks[3].done()  # the slots are taken
    held.pop().release()
    held.append(await tasks[3])
    for lease in held:
        lease.release()


async def test_a_limit_that_is_lowered_takes_nothing_away(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    (entry,) = await ready(fleet, "m")
    held = [await acquire(fleet, entry) for _ in range(3)]
    order(fleet, limit=1)
    task = await waiting(fleet, entry)
    for lease in held[:2]:
        lease.release()
        await asyncio.sleep(0.01)
        assert not task.done()
    held[2].release()
    (await task).release()


async def test_who_leaves_the_line_of_a_bounded_pool_leaves_its_slot_to_another_model(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    one, two = await ready(fleet, "one", "two")
    order(fleet, limit=1)
    held = await acquire(fleet, one)
    early, late = await waiting(fleet, one), await waiting(fleet, two)
    held.release()  # the slot is handed to `early`
    early.cancel()  # which leaves before it has run
    lease = await late
    assert early.cancelled()
    lease.release()
    assert [engine.in_flight for engine in fleet.engines()] == [0, 0]


async def test_a_crash_frees_the_pool_for_other_models(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet = make_fleet()
    one, two = await ready(fleet, "one", "two")
    order(fleet, limit=1)
    lost = await acquire(fleet, one)
    task = await waiting(fleet, two)
    await children.kill("cpu/one")
    lease = await task
    lost.release()
    lease.release()
    assert [engine.in_flight for engine in fleet.engines()] == [0, 0]


async def test_what_runs_on_a_model_that_was_removed_counts_until_it_ends(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    one, two = await ready(fleet, "one", "two")
    order(fleet, limit=1)
    held = await acquire(fleet, one)
    fleet.forget(one.name)
    assert [engine.model for engine in fleet.engines()] == ["two"]
    task = await waiting(fleet, two)
    await asyncio.sleep(0.02)
    assert not task.done()
    held.release()
    (await task).release()


async def test_a_paused_install_refuses_every_new_request(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    (entry,) = await ready(fleet, "m", max_instances=1)
    held = await acquire(fleet, entry)
    task = await waiting(fleet, entry)
    order(fleet, HEAD_POOL, paused="paused in the flow-run UI (work pool 'head')")
    for refused in (task, acquire(fleet, entry)):
        with pytest.raises(NoCapacity, match=r"takes no new requests: paused in the flow-run UI \(work pool 'head'\)$"):
            await refused
    assert (await fleet.preview(demand(entry), entry)).action == "none"
    held.release()
    fleet.bounds.obey(Orders())
    (await acquire(fleet, entry)).release()


async def test_the_install_s_limit_bounds_far_services_too(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet = make_fleet()
    (entry,) = await ready(fleet, "m")
    url = f"http://127.0.0.1:{children.states()['cpu/m'].port}"
    far = make_entry("far", path=None, format=ModelFormat.SERVICE, service_url=url)
    (await acquire(fleet, far)).release()
    order(fleet, HEAD_POOL, limit=1)
    held = await acquire(fleet, far)
    task = await waiting(fleet, entry)
    held.release()
    lease = await task
    second = await waiting(fleet, far)
    fleet.forget(far.name)  # its service is another one now; who waits looks again
    await asyncio.sleep(0.02)
    lease.release()
    (await second).release()


async def test_a_pool_that_cannot_be_used_is_among_the_reasons(make_fleet: MakeFleet) -> None:
    fleet, entry = make_fleet(), make_entry()
    fleet.bounds.obey(Orders(unusable={PoolId("night"): "work pool 'night' names no device"}))
    placement = await fleet.preview(demand(entry), entry)
    assert placement.pool == "cpu"
    assert [(over.candidate, over.reason) for over in placement.passed_over] == [
        ("night", "work pool 'night' names no device")
    ]
    assert [pool.pool for pool in fleet.pools()] == ["cpu"]


@pytest.mark.parametrize("seed", range(40))
async def test_nobody_is_forgotten_whatever_happens_in_between(make_fleet: MakeFleet, seed: int) -> None:
    """Steps of both lanes come, leave and end at random while orders change: never more than allowed, all get in."""
    dice = random.Random(seed)
    fleet = make_fleet(make_pool("a"), make_pool("b"), queue_wait_s=60)
    entries = await ready(fleet, "x", max_instances=2) + await ready(fleet, "y", max_instances=1, engine="b")
    entries += await ready(fleet, "z", max_instances=2, engine="a")
    state = _Play(fleet, dice)
    for _ in range(150):
        state.move(dice.choice(entries))
        if dice.random() < 0.6:
            await asyncio.sleep(0)
        state.check()
    fleet.bounds.obey(Orders())
    await state.end()
    assert [engine.in_flight for engine in fleet.engines()] == [0] * len(fleet.engines())
    assert all(fleet.waiting(ModelName(name)) == 0 for name in "xyz")


class _Play:
    """Random steps at one fleet."""

    def __init__(self, fleet: Fleet, dice: random.Random) -> None:
        self.fleet = fleet
        self.dice = dice
        self.tasks: list[asyncio.Task[Lease]] = []
        self.held: list[Lease] = []
        self.limits: dict[PoolId, int] = {}
        self.grown: dict[PoolId, int] = {}
        """What a pool had in flight when its limit was lowered: that much it may still have."""

    def move(self, entry: ModelEntry) -> None:
        choices: list[Callable[[], None]] = [
            lambda: self.tasks.append(asyncio.create_task(acquire(self.fleet, entry))),
            self._release,
            self._release,
            self._leave,
            self._order,
        ]
        self.dice.choices(choices, weights=(5, 2, 2, 1, 1))[0]()
        self._collect()

    def check(self) -> None:
        for pool, limit in self.limits.items():
            now = self.in_flight(pool)
            assert now <= max(limit, self.grown[pool])
            self.grown[pool] = min(self.grown[pool], now)

    def in_flight(self, pool: PoolId) -> int:
        return sum(engine.in_flight for engine in self.fleet.engines() if pool in (HEAD_POOL, engine.pool))

    async def end(self) -> None:
        async with asyncio.timeout(10):
            while self.tasks:
                self._collect()
                self._release()
                await asyncio.sleep(0)
        while self.held:
            self._release()
        await asyncio.sleep(0)

    def _collect(self) -> None:
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            if not task.cancelled():
                if task.exception() is None:
                    self.held.append(task.result())
                else:
                    assert isinstance(task.exception(), NoCapacity)

    def _release(self) -> None:
        if self.held:
            self.held.pop(self.dice.randrange(len(self.held))).release()

    def _leave(self) -> None:
        if self.tasks:
            self.dice.choice(self.tasks).cancel()

    def _order(self) -> None:
        pools = [PoolId("a"), PoolId("b"), HEAD_POOL]
        self.limits = {pool: self.dice.randrange(1, 4) for pool in pools if self.dice.random() < 0.6}
        self.grown = {pool: self.in_flight(pool) for pool in self.limits}
        paused = {pool for pool in pools[:2] if self.dice.random() < 0.2}
        self.fleet.bounds.obey(
            Orders({pool: Order("closed" if pool in paused else None, self.limits.get(pool)) for pool in pools})
        )
