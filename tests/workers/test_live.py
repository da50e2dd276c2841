"""Engines as the router sees them, and leases that are given back once."""

from infra.types import EngineId, PoolId
from tests.fakes import make_entry
from workers.live import Engine, Lease
from workers.types import Placement


def engine() -> Engine:
    return Engine(EngineId("cpu/m"), make_entry(), PoolId("cpu"), True, 4, in_flight=3, incarnation=2, reason="x")


def test_a_lease_is_given_back_once() -> None:
    given_back: list[Lease] = []
    placement = Placement("use", PoolId("cpu"), EngineId("cpu/m"), "free")
    lease = Lease(engine(), 2, 0, placement, 0.0, 0.0, given_back.append)
    lease.failed = True
    lease.release()
    lease.release()
    assert given_back == [lease]
    assert lease.released


def test_a_view_is_a_copy_of_the_moment() -> None:
    live = engine()
    view = live.view("hot")
    live.in_flight = 0
    assert (view.engine, view.model, view.pool, view.state) == ("cpu/m", "m", "cpu", "loading")
    assert (view.slots, view.in_flight, view.incarnation, view.reason, view.paused) == (4, 3, 2, "x", "hot")


def test_engines_and_leases_are_told_apart_by_identity() -> None:
    assert engine() != engine()
    assert len({engine(), engine()}) == 2
