"""From what the flow-run server says of work pools to what the router obeys, now and after a restart."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from infra.errors import DiskFull, FlowsUnavailable
from infra.prefect_api import PrefectApi
from infra.prefect_shapes import WorkPoolState
from infra.types import HEAD_POOL, PoolId
from tests.fakes import make_pool
from tests.fakes_prefect_api import FakePrefect
from workers.bounds import Bounds, Order
from workers.pools import orders as module
from workers.pools.card import CardPool
from workers.pools.orders import OrderBook, orders, seen

CPU, GPU = PoolId("cpu"), PoolId("cuda-1")
CARDS = (CPU, GPU)
UI = "in the flow-run UI (work pool '{}')"


def state(name: str, kind: str = "coderai-card", device: str | None = None, **fields: Any) -> WorkPoolState:
    variable = {} if device is None else {"default": device}
    template = {"variables": {"properties": {"device": variable}}}
    return WorkPoolState.model_validate({"name": name, "type": kind, "base_job_template": template} | fields)


@pytest.mark.parametrize(
    ("states", "ordered"),
    [
        ([], {}),
        ([state("cpu"), state("head", "coderai-head")], {}),
        ([state("cpu", is_paused=True)], {CPU: Order(f"paused {UI.format('cpu')}")}),
        ([state("cpu", concurrency_limit=3)], {CPU: Order(limit=3)}),
        ([state("cpu", concurrency_limit=0)], {CPU: Order(f"its concurrency limit is 0 {UI.format('cpu')}")}),
        ([state("cpu", is_paused=True, concurrency_limit=3)], {CPU: Order(f"paused {UI.format('cpu')}")}),
        ([state("head", "coderai-head", concurrency_limit=9)], {HEAD_POOL: Order(limit=9)}),
        ([state("night", device="cuda-1", is_paused=True)], {GPU: Order(f"paused {UI.format('night')}")}),
        ([state("cpu", device="cuda-1", concurrency_limit=1)], {CPU: Order(limit=1)}),  # a card's own pool is its own
        ([state("cpu", concurrency_limit=3), state("night", device="cpu", concurrency_limit=2)], {CPU: Order(limit=2)}),
        ([state("cpu", concurrency_limit=1), state("night", device="cpu")], {CPU: Order(limit=1)}),
        ([state("theirs", "process", is_paused=True), state("cpu", "process", is_paused=True)], {}),
    ],
)
def test_what_is_obeyed(states: list[WorkPoolState], ordered: dict[PoolId, Order]) -> None:
    told = orders(seen(states), CARDS)
    assert told.by_pool == ordered
    assert told.unusable == {}


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (state("night", device="cuda-9"), "names the device 'cuda-9', which is not here"),
        (state("night"), "names no device"),
        (state("night", "coderai-head"), "an install has one pool of type coderai-head, which is 'head'"),
    ],
)
def test_a_pool_that_nothing_can_use_says_why(made: WorkPoolState, why: str) -> None:
    told = orders(seen([made, state("cpu", is_paused=True)]), CARDS)
    assert list(told.by_pool) == [CPU]
    assert list(told.unusable) == ["night"]
    assert why in told.unusable[PoolId("night")]


class Server:
    """A flow-run server that says what the test wants, or nothing."""

    def __init__(self) -> None:
        self.says: list[WorkPoolState] | None = []
        self.asked = 0

    async def __call__(self) -> list[WorkPoolState]:
        self.asked += 1
        if self.says is None:
            raise FlowsUnavailable("it is starting")
        return self.says

    async def heard(self) -> None:
        """What it says now has been taken over."""
        before = self.asked
        async with asyncio.timeout(5):
            while self.asked < before + 2:
                await asyncio.sleep(0.001)


Front = Callable[[], Awaitable[dict[PoolId, CardPool]]]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def start(server: Server, tmp_path: Path) -> AsyncIterator[Front]:
    """Begin a front's life, ending the one before: its pools, before anybody was asked."""
    keepers: list[asyncio.Task[None]] = []

    async def begin() -> dict[PoolId, CardPool]:
        for keeper in keepers:
            keeper.cancel()
        pools = {pool: make_pool(pool) for pool in CARDS}
        book = OrderBook(Bounds(pools, {}, lambda: ()), CARDS, tmp_path / "run" / "pools.json")
        book.restore()
        keepers.append(asyncio.create_task(book.keep(server, every_s=0.001)))
        return pools

    yield begin
    for keeper in keepers:
        keeper.cancel()
    await asyncio.gather(*keepers, return_exceptions=True)
    assert all(keeper.cancelled() for keeper in keepers)


async def test_a_paused_pool_stays_paused_over_a_restart_until_the_server_says_otherwise(
    start: Front, server: Server, tmp_path: Path
) -> None:
    pools = await start()
    assert not (tmp_path / "run").exists()
    server.says = [state("cpu", is_paused=True)]
    await server.heard()
    assert pools[CPU].paused == f"paused {UI.format('cpu')}"
    server.says = None
    await server.heard()
    assert pools[CPU].paused
    pools = await start()
    assert pools[CPU].paused == f"paused {UI.format('cpu')}"
    await server.heard()
    assert pools[CPU].paused
    server.says = [state("cpu")]
    await server.heard()
    assert pools[CPU].paused is None
    assert (await start())[CPU].paused is None
    assert (tmp_path / "run" / "pools.json").stat().st_mode & 0o777 == 0o600


async def test_a_pool_that_is_deleted_orders_nothing_any_more(start: Front, server: Server) -> None:
    server.says = [state("cpu", is_paused=True)]
    pools = await start()
    await server.heard()
    server.says = []
    await server.heard()
    assert pools[CPU].paused is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version":2,"pools":[]}', b"\xff\x00", b'{"pools":[{"a":1}]}']
)
async def test_a_file_that_cannot_be_read_counts_for_nothing(
    start: Front, server: Server, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "pools.json").write_bytes(content)
    assert (await start())[CPU].paused is None
    assert "cannot be read" in caplog.text
    server.says = [state("cpu", is_paused=True)]
    await server.heard()
    assert (await start())[CPU].paused


async def test_a_full_disk_keeps_nobody_from_obeying(
    start: Front, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(module, "write_atomic", full)
    server.says = [state("cpu", is_paused=True)]
    pools = await start()
    await server.heard()
    assert pools[CPU].paused
    assert "holds until the next restart only: no room" in caplog.text


async def test_each_change_is_said_once(start: Front, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    await start()
    for says in (
        [state("cpu", is_paused=True), state("night", device="gone")],
        [state("cpu", concurrency_limit=2), state("night", device="gone")],
        [state("night", device="gone")],
    ):
        server.says = says
        await server.heard()
        await server.heard()
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == f"pool cpu: paused {UI.format('cpu')}"
    assert said[1].startswith("work pool 'night' names the device 'gone', which is not here")
    assert said[2:] == ["pool cpu: does 2 at once and no more", "pool cpu: takes what it has room for"]


@pytest.mark.enable_socket
async def test_over_the_flow_run_server_s_own_api(tmp_path: Path) -> None:
    pools = {pool: make_pool(pool) for pool in CARDS}
    async with FakePrefect() as prefect, PrefectApi(prefect.address) as api:
        prefect.pools["cpu"] = {"name": "cpu", "type": "coderai-card", "is_paused": False, "concurrency_limit": None}
        bounds = Bounds(pools, {}, lambda: ())
        keeper = asyncio.create_task(
            OrderBook(bounds, CARDS, tmp_path / "run" / "pools.json").keep(api.work_pools, every_s=0.01)
        )
        for paused in (True, False):
            await api.change_pool(CPU, {"is_paused": paused})
            async with asyncio.timeout(5):
                while bounds.active is not paused:
                    await asyncio.sleep(0.005)
            assert (pools[CPU].paused is not None) is paused
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
