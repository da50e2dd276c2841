"""What an operator allows: pools that are paused, pools that do only so much at once, and who comes next there.

Nothing is counted here: what runs in a pool is what its engines have in flight, so that no count can drift from it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from infra.types import HEAD_POOL, ModelName, PoolId
from workers.lines import SlotLine
from workers.live import Engine
from workers.pools.card import CardPool
from workers.types import EngineView, PoolView

POOL_PAUSED = "pool_paused"
"""The code of the error where only a pause is in the way, or a limit of 0."""


@dataclass(frozen=True, slots=True)
class Order:
    """What an operator has ordered for a pool: `paused` says why it takes no new work, `limit` how much at once."""

    paused: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders for the pools of this install, and the pools that somebody made and that nothing can use: why."""

    by_pool: Mapping[PoolId, Order] = field(default_factory=dict)
    unusable: Mapping[PoolId, str] = field(default_factory=dict)


class Bounds:
    """Pauses and limits over the fleet's engines and waiting lines, which stay the fleet's."""

    def __init__(
        self,
        pools: Mapping[PoolId, CardPool],
        lines: Mapping[ModelName, SlotLine],
        engines: Callable[[], Iterable[Engine]],
    ) -> None:
        self.active = False
        """Whether any pool is paused or has a limit; while none is, nobody needs to ask here."""
        self.closed: str | None = None
        """Why this install takes no new requests, else None."""
        self.unusable: tuple[PoolView, ...] = ()
        """Pools that only an operator knows, for the reasons of a placement."""
        self._pools = pools
        self._lines = lines
        self._engines = engines
        self._most: int | None = None
        self._limits: dict[PoolId, int] = {}
        self._parting: set[Engine] = set()

    def obey(self, orders: Orders) -> None:
        """Take new orders over, instead of those before."""
        head = orders.by_pool.get(HEAD_POOL, Order())
        self.closed = None if head.paused is None else f"this install takes no new requests: {head.paused}"
        self._most = head.limit
        ours = {pool: orders.by_pool.get(pool, Order()) for pool in self._pools}
        self._limits = {pool: order.limit for pool, order in ours.items() if order.limit is not None}
        for pool, order in ours.items():
            self._pools[pool].hold("operator", order.paused)
        self.unusable = tuple(PoolView(pool, "cpu", 0, 0, unusable=why) for pool, why in orders.unusable.items())
        self.settle()

    def settle(self) -> None:
        """A pool was paused, or may work again, or may do more or less: whom that concerns is told."""
        paused = any(pool.paused for pool in self._pools.values())
        self.active = paused or self.closed is not None or self._most is not None or bool(self._limits)
        open_models = {engine.model for engine in self._engines() if engine.state == "ready" and self._open(engine)}
        for model, line in self._lines.items():
            if model not in open_models:
                line.look_again()
        self.serve()

    def views(self, engines: Iterable[Engine]) -> tuple[EngineView, ...]:
        """What the router may see of the engines."""
        if not self.active:
            return tuple([engine.view() for engine in engines])
        return tuple([engine.view(self._paused(engine), self.full(engine)) for engine in engines])

    def full(self, engine: Engine) -> str | None:
        """Why the engine's pool takes no more than it has, or None."""
        most = self._most
        if most is not None and sum(other.in_flight for other in self._all()) >= most:
            return _limit_words(HEAD_POOL, most)
        most = self._limits.get(engine.pool)
        if most is not None and sum(other.in_flight for other in self._all() if other.pool == engine.pool) >= most:
            return _limit_words(engine.pool, most)
        return None

    def parts(self, engine: Engine) -> None:
        """The fleet knows it no more; what still runs there counts until it ends."""
        self._parting = {other for other in (*self._parting, engine) if other.in_flight}

    def serve(self) -> None:
        """Give every slot that is free and allowed to whoever has waited longest, of whatever model."""
        while (best := min(self._servable(), default=None)) is not None:
            engine = best[-1]
            if not self._lines[engine.model].hand_over(engine):
                return
            engine.in_flight += 1

    def _servable(self) -> Iterator[tuple[int, float, bool, str, Engine]]:
        """Engines that can take somebody who waits, each with what makes it come first; ids are unique."""
        for engine in self._engines():
            line = self._lines.get(engine.model)
            if not line or engine.state != "ready" or engine.in_flight >= engine.slots:
                continue
            first = line.first()
            if first is not None and self._open(engine) and self.full(engine) is None:
                yield first, engine.in_flight / engine.slots, not engine.local, engine.id, engine

    def _open(self, engine: Engine) -> bool:
        """Whether its pool, and the install, take new work."""
        return self.closed is None and self._paused(engine) is None

    def _paused(self, engine: Engine) -> str | None:
        pool = self._pools.get(engine.pool)
        return pool.paused if pool is not None else None

    def _all(self) -> Iterator[Engine]:
        yield from self._engines()
        yield from self._parting


def _limit_words(pool: PoolId, most: int) -> str:
    return f"pool {pool} does {most} at once and no more (its concurrency limit in the flow-run UI)"
