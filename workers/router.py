"""Where a step goes: a pure function of the demand, the model's entry and a snapshot of the cluster.

Order: pin, then the engine with the conversation's warm cache, then the resident engine that is least busy (a local one
before a far one on a tie), then a load on the model's owner. Whoever is not taken gets a reason.
"""

from collections.abc import Callable
from dataclasses import replace

from infra.types import EngineId, PoolId
from workers.compat import misfit
from workers.types import Demand, EngineView, ModelEntry, ModelFormat, PassedOver, Placement, PoolView, Snapshot


def place(
    demand: Demand,
    entry: ModelEntry,
    snapshot: Snapshot,
    *,
    needed_bytes: int = 0,
    warm: EngineId | None = None,
    tried: frozenset[tuple[EngineId, int]] = frozenset(),
) -> Placement:
    """Choose for one step.

    `warm` is the engine that holds the conversation's earlier turns. `tried` are engines, with their incarnation, that
    already failed this step. `needed_bytes` is the memory that a load would take.
    """
    if demand.home is not None and demand.pin is None and not tried:
        at_home = _place(replace(demand, pin=demand.home), entry, snapshot, needed_bytes, warm, tried)
        if at_home.action != "none" or not snapshot.pools:
            return at_home
    return _place(demand, entry, snapshot, needed_bytes, warm, tried)


def _place(
    demand: Demand,
    entry: ModelEntry,
    snapshot: Snapshot,
    needed_bytes: int,
    warm: EngineId | None,
    tried: frozenset[tuple[EngineId, int]],
) -> Placement:
    pin = demand.pin or entry.engine
    passed: list[PassedOver] = []
    usable: list[EngineView] = []
    waiting: EngineView | None = None
    for view in snapshot.engines:
        if view.model != entry.name:
            continue
        reason = _engine_reason(view, demand, pin, tried)
        if reason is not None:
            passed.append(PassedOver(view.engine, reason))
        elif view.state == "ready":
            usable.append(view)
        else:
            waiting = waiting or view
    if usable:
        return _choose_resident(usable, warm, passed)
    if waiting is not None and not demand.idle:
        return Placement("wait_load", waiting.pool, waiting.engine, waiting.reason or "loading", tuple(passed))
    if entry.format is ModelFormat.SERVICE or demand.idle:
        return _none(demand, entry, snapshot, needed_bytes, passed)
    return _choose_pool(demand, entry, snapshot, needed_bytes, passed)


def _engine_reason(
    view: EngineView, demand: Demand, pin: PoolId | None, tried: frozenset[tuple[EngineId, int]]
) -> str | None:
    """Why this engine cannot take the step, or None."""
    if pin is not None and view.pool != pin:
        return _elsewhere(demand, pin)
    if demand.idle and view.in_flight:
        return "it is not idle"
    if view.state == "ready" and (view.engine, view.incarnation) in tried:
        return "it has failed this step already"
    if view.state in ("down", "quarantined"):
        return view.reason or view.state
    return view.paused


def _elsewhere(demand: Demand, pin: PoolId) -> str:
    return f"this part is for {pin}" if demand.home == pin else f"the model is pinned to {pin}"


def _choose_resident(usable: list[EngineView], warm: EngineId | None, passed: list[PassedOver]) -> Placement:
    if len(usable) == 1:
        only = usable[0]
        if only.in_flight < only.slots and only.full is None:
            return Placement("use", only.pool, only.engine, "resident", tuple(passed))
        return Placement("queue", only.pool, only.engine, _taken(only), tuple(passed))
    free = [view for view in usable if view.in_flight < view.slots and view.full is None]
    chosen = next((view for view in free if view.engine == warm), None)
    if chosen is not None:
        why = "its cache holds this conversation"
    elif free:
        chosen = min(free, key=_load_order)
        why = "resident and least busy"
    else:
        chosen = min(usable, key=_load_order)
        why = _taken(chosen)
    for view in usable:
        if view is not chosen:
            passed.append(PassedOver(view.engine, _busier(view, chosen)))
    return Placement("use" if free else "queue", chosen.pool, chosen.engine, why, tuple(passed))


def _load_order(view: EngineView) -> tuple[float, bool, str]:
    return view.in_flight / view.slots, not view.local, view.engine


def _taken(view: EngineView) -> str:
    """Why it takes nothing more at this moment."""
    return view.full or f"all {view.slots} slots are taken"


def _busier(view: EngineView, chosen: EngineView) -> str:
    if view.in_flight >= view.slots or view.full is not None:
        return _taken(view)
    if view.in_flight / view.slots > chosen.in_flight / chosen.slots:
        return f"busier ({view.in_flight} of {view.slots} slots, the chosen one {chosen.in_flight} of {chosen.slots})"
    if chosen.local and not view.local:
        return "as busy, but a local engine comes before a far one"
    return f"{chosen.engine} is preferred"


def _choose_pool(
    demand: Demand, entry: ModelEntry, snapshot: Snapshot, needed_bytes: int, passed: list[PassedOver]
) -> Placement:
    """Not resident anywhere: a load where there is room, accelerators first, else where idle models can make room."""
    pin = demand.pin or entry.engine
    taken = {view.pool for view in snapshot.engines if view.model == entry.name}
    candidates = _candidates(demand, entry, [pool for pool in snapshot.pools if pool.pool not in taken], passed)
    roomy = [pool for pool in candidates if pool.free_bytes >= needed_bytes]
    after_unload = [pool for pool in candidates if pool.free_bytes + pool.reclaimable_bytes >= needed_bytes]
    if demand.home is not None and (pin == demand.home or taken):
        after_unload = []  # other models do not make room for a part
    preferred: Callable[[PoolView], tuple[bool, int, str]] = lambda pool: (  # noqa: E731
        pool.backend == "cpu",
        -pool.free_bytes,
        pool.pool,
    )
    if not roomy and not after_unload:
        for pool in candidates:
            passed.append(PassedOver(pool.pool, _no_room(pool, needed_bytes)))
        return _none(demand, entry, snapshot, needed_bytes, passed)
    chosen = min(roomy or after_unload, key=preferred)
    for pool in candidates:
        if pool is not chosen:
            full = pool.free_bytes < needed_bytes
            passed.append(
                PassedOver(pool.pool, _no_room(pool, needed_bytes) if full else f"{chosen.pool} is preferred")
            )
    why = "its owner; it has the room" if roomy else "its owner; idle models make room"
    return Placement("load", chosen.pool, None, why, tuple(passed))


def _candidates(demand: Demand, entry: ModelEntry, pools: list[PoolView], passed: list[PassedOver]) -> list[PoolView]:
    """The pools that the model could be loaded on, room or not."""
    pin = demand.pin or entry.engine
    candidates: list[PoolView] = []
    for pool in pools:
        reason = misfit(entry, pool) or pool.paused
        if pin is not None and pool.pool != pin:
            reason = _elsewhere(demand, pin)
        if reason is None:
            candidates.append(pool)
        else:
            passed.append(PassedOver(pool.pool, reason))
    return candidates


def _no_room(pool: PoolView, needed_bytes: int) -> str:
    return (
        f"no room: {needed_bytes / 2**30:.2f} GiB needed, {pool.free_bytes / 2**30:.2f} GiB free, "
        f"{pool.reclaimable_bytes / 2**30:.2f} GiB more by unloading idle models"
    )


def _none(
    demand: Demand, entry: ModelEntry, snapshot: Snapshot, needed_bytes: int, passed: list[PassedOver]
) -> Placement:
    pin = demand.pin or entry.engine
    lasting = not demand.idle and not _may_pass(pin, entry, snapshot, needed_bytes)
    return Placement("none", None, None, _nowhere(entry, pin, passed), tuple(passed), lasting)


def _may_pass(pin: PoolId | None, entry: ModelEntry, snapshot: Snapshot, needed_bytes: int) -> bool:
    """Whether what is in the way may go by itself: a pause ends, running requests give their memory back, a service
    comes up again. A model that was given up, or that no card could hold were it empty, waits for somebody."""
    engines = [view for view in snapshot.engines if view.model == entry.name and pin in (None, view.pool)]
    if any(view.state == "down" or (view.state == "ready" and view.paused is not None) for view in engines):
        return True
    taken = {view.pool for view in engines}
    pools = [pool for pool in snapshot.pools if pool.pool not in taken and pin in (None, pool.pool)]
    fitting = [pool for pool in pools if misfit(entry, pool) is None]
    return any(pool.paused is not None or needed_bytes <= pool.total_bytes - pool.reserve_bytes for pool in fitting)


def _nowhere(entry: ModelEntry, pin: PoolId | None, passed: list[PassedOver]) -> str:
    reasons = "; ".join(f"{over.candidate}: {over.reason}" for over in passed)
    if not passed and pin is not None:
        return f"model '{entry.name}' is pinned to pool '{pin}', which this install does not have"
    return f"no pool can take model '{entry.name}': {reasons or 'there is no pool'}"
