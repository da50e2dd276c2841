"""Where parts could run: who holds the model first, then cards with room; each exclusion has its case."""

from typing import Any

import pytest

from infra.types import HEAD_POOL, EngineId, ModelName, PoolId
from tests.fakes import GIB, FakeChildren, make_entry, make_pool
from tests.workers.conftest import MakeFleet, acquire
from workers.bounds import Order, Orders
from workers.sites import Site, Sites, find_sites
from workers.speeds import Speeds
from workers.types import EngineView, ModelEntry, ModelFormat, PoolView, Snapshot


def holds(pool: str, in_flight: int = 0, **fields: Any) -> EngineView:
    row: dict[str, Any] = {"state": "ready", "slots": 4, "local": True} | fields
    return EngineView(EngineId(f"{pool}/m"), ModelName("m"), PoolId(pool), in_flight=in_flight, **row)


def card(pool: str, free_gib: float = 8, backend: Any = "cuda", **fields: Any) -> PoolView:
    return PoolView(PoolId(pool), backend, 16 * GIB, int(free_gib * GIB), **fields)


def found(
    *engines: EngineView, pools: tuple[PoolView, ...] = (), entry: ModelEntry | None = None, **distribute: Any
) -> list[str]:
    """The sites' pools, those to be loaded on with a question mark."""
    sites = find_sites(entry or make_entry(distribute=distribute), Snapshot(pools, engines), GIB, lambda _engine: None)
    return [site.pool if site.resident else f"{site.pool}?" for site in sites]


def test_who_holds_the_model_comes_first_the_least_busy_before_others() -> None:
    assert found(holds("a", 2), holds("b"), pools=(card("a"), card("b"), card("c"), card("d", 9))) == [
        "b",
        "a",
        "d?",
        "c?",
    ]


@pytest.mark.parametrize(
    "engine",
    [
        holds("a", 4),
        holds("a", state="loading"),
        holds("a", state="quarantined"),
        holds("a", paused="paused in the flow-run UI"),
        holds("a", full="pool a does 1 at once"),
    ],
    ids=["busy", "loading", "quarantined", "paused", "full"],
)
def test_an_engine_that_cannot_begin_now_is_none_and_its_card_neither(engine: EngineView) -> None:
    assert found(engine, holds("b"), pools=(card("a"), card("b"))) == ["b"]


@pytest.mark.parametrize(
    "pool", [card("b", 0.5), card("b", paused="too hot"), card("b", unusable="no driver"), card("b", backend="service")]
)
def test_a_card_without_room_or_that_is_paused_or_unfit_is_none(pool: PoolView) -> None:
    assert found(holds("a"), pools=(card("a"), pool)) == ["a"]


def test_a_cpu_does_not_slow_accelerators_down_unless_it_is_named() -> None:
    pools = (card("gpu"), card("cpu", backend="cpu"))
    assert found(holds("gpu"), pools=pools) == ["gpu"]
    assert found(holds("gpu"), pools=pools, nodes=("cpu", "gpu")) == ["gpu", "cpu?"]
    assert found(holds("cpu-a"), pools=(card("cpu-a", backend="cpu"), card("cpu-b", backend="cpu"))) == [
        "cpu-a",
        "cpu-b?",
    ]


def test_nodes_name_pools_or_engines() -> None:
    assert found(holds("a"), holds("b"), holds("c"), nodes=("a", "c/m")) == ["a", "c"]


def test_a_model_with_one_place_has_none() -> None:
    far = make_entry(format=ModelFormat.SERVICE, path=None, service_url="http://box")
    assert found(holds("a"), holds("b"), entry=far) == []
    assert found(holds("a"), holds("b"), entry=make_entry(engine="a")) == []


@pytest.mark.enable_socket
async def test_the_cluster_as_it_is_now(make_fleet: MakeFleet, children: FakeChildren) -> None:
    fleet, entry, speeds = make_fleet(make_pool("a"), make_pool("b")), make_entry(), Speeds()
    sites = Sites(fleet, speeds)
    assert [site.resident for site in sites(entry)] == [False, False]
    lease = await acquire(fleet, entry)
    speeds.note(lease.engine.id, entry.name, 8, 2.0)
    other = "b" if lease.engine.pool == "a" else "a"
    assert sites(entry) == (
        Site(lease.engine.pool, lease.engine.id, True, 4.0),
        Site(PoolId(other), EngineId(f"{other}/m"), False),
    )
    fleet.bounds.obey(Orders({HEAD_POOL: Order("paused")}))
    assert sites(entry) == ()
    lease.release()
