"""Where the parts of one request could run: the engines that hold its model, and cards that have room for it."""

from collections.abc import Callable
from typing import NamedTuple

from infra.types import EngineId, PoolId
from workers.compat import misfit
from workers.fleet import Fleet
from workers.speeds import Speeds
from workers.types import EngineView, ModelEntry, ModelFormat, PoolView, Snapshot


class Site(NamedTuple):
    """One place for a part. `resident`: the model is in memory there; `items_per_s` is None where nothing is known."""

    pool: PoolId
    engine: EngineId
    resident: bool
    items_per_s: float | None = None


SpeedOf = Callable[[EngineId], float | None]


def find_sites(entry: ModelEntry, snapshot: Snapshot, needed_bytes: int, speed_of: SpeedOf) -> tuple[Site, ...]:
    """The places that `entry.distribute.nodes` allows; those that hold the model first, of these the least busy first.

    An engine without a free slot is none: what is busy already gains nothing by more parts. A card is one only while
    `needed_bytes` are free on it, and a CPU only where no accelerator can do it, unless `nodes` names it.
    """
    if entry.format is ModelFormat.SERVICE or entry.engine is not None:
        return ()
    nodes = entry.distribute.nodes
    here = [view for view in snapshot.engines if view.model == entry.name]
    free = [view for view in here if _is_free(view) and _allowed(nodes, view.pool, view.engine)]
    free.sort(key=lambda view: (view.in_flight / view.slots, view.engine))
    sites = [Site(view.pool, view.engine, True, speed_of(view.engine)) for view in free]
    taken = {view.pool for view in here}
    fast = {pool.pool for pool in snapshot.pools if pool.backend != "cpu" and misfit(entry, pool) is None}
    for pool in sorted(snapshot.pools, key=lambda pool: (pool.backend == "cpu", -pool.free_bytes, pool.pool)):
        engine = EngineId(f"{pool.pool}/{entry.name}")
        slow = bool(fast) and pool.backend == "cpu" and not nodes
        if pool.pool in taken or slow or not _allowed(nodes, pool.pool, engine):
            continue
        if _has_room(entry, pool, needed_bytes):
            sites.append(Site(pool.pool, engine, False, speed_of(engine)))
    return tuple(sites)


class Sites:
    """The same of the cluster as it is now."""

    def __init__(self, fleet: Fleet, speeds: Speeds) -> None:
        self._fleet = fleet
        self.speeds = speeds

    def __call__(self, entry: ModelEntry) -> tuple[Site, ...]:
        """The places for parts of a request for this model."""
        fleet = self._fleet
        engines = fleet.residents.of(entry.name)
        if fleet.bounds.closed is not None:
            return ()
        needed_bytes = max((engine.memory_bytes for engine in engines), default=entry.weights_bytes)
        snapshot = Snapshot(fleet.pools(), fleet.bounds.views(engines))
        return find_sites(entry, snapshot, needed_bytes, lambda engine: self.speeds.of(engine, entry.name))


def _is_free(view: EngineView) -> bool:
    return view.state == "ready" and view.in_flight < view.slots and view.paused is None and view.full is None


def _allowed(nodes: tuple[str, ...], pool: PoolId, engine: EngineId) -> bool:
    return not nodes or pool in nodes or engine in nodes


def _has_room(entry: ModelEntry, pool: PoolView, needed_bytes: int) -> bool:
    return misfit(entry, pool) is None and pool.paused is None and pool.free_bytes >= needed_bytes
