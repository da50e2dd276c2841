"""What the flow-run UI says of the work pools, as orders for the cards: read every two seconds, kept over restarts.

A work pool of a card has the card's id for its name. One that an operator made is taken for the card that its template
names as `device`; where several name one card, each of them has its say. The pool `head` stands for the whole install.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from infra.errors import DiskFull, FlowsUnavailable
from infra.files import make_private_folder, write_atomic
from infra.prefect_shapes import WorkPoolState
from infra.types import HEAD_POOL, Frozen, PoolId
from workers.bounds import Bounds, Order, Orders

log = logging.getLogger("workers.pools.orders")

CARD_TYPE = "coderai-card"
"""Prefect's type of a pool that stands for one card."""
HEAD_TYPE = "coderai-head"
"""Prefect's type of the pool that new jobs go to: the install that took the request."""
POLL_S = 2.0
ORDERS_FILE = ("run", "pools.json")
"""Where the last orders are kept, so that a paused pool is paused before anybody can be asked."""


class WorkPool(Frozen):
    """One work pool as far as the router obeys it."""

    name: PoolId
    type: str
    paused: bool
    limit: int | None
    device: str | None


class _Kept(Frozen):
    version: Literal[1] = 1
    pools: tuple[WorkPool, ...]


def seen(states: Iterable[WorkPoolState]) -> tuple[WorkPool, ...]:
    """The work pools of our own types; Prefect's others have nothing to do with this install's cards."""
    return tuple(
        WorkPool(
            name=state.name,
            type=state.type,
            paused=state.is_paused,
            limit=state.concurrency_limit,
            device=state.device,
        )
        for state in states
        if state.type in (CARD_TYPE, HEAD_TYPE)
    )


def orders(pools: Iterable[WorkPool], cards: Collection[PoolId]) -> Orders:
    """What the pools order for these cards."""
    by_pool: dict[PoolId, Order] = {}
    unusable: dict[PoolId, str] = {}
    for pool in pools:
        target = _target(pool, cards)
        if target is None:
            unusable[pool.name] = _unusable(pool, cards)
        else:
            by_pool[target] = _both(by_pool.get(target, Order()), _order(pool))
    return Orders({pool: order for pool, order in by_pool.items() if order != Order()}, unusable)


class OrderBook:
    """Keeps the fleet's bounds as the work pools say, for as long as the front lives."""

    def __init__(self, bounds: Bounds, cards: Collection[PoolId], path: Path) -> None:
        self._bounds = bounds
        self._cards = cards
        self._path = path
        self._pools: tuple[WorkPool, ...] = ()
        self._orders = Orders()

    def restore(self) -> None:
        """Take over what was last known; a file that cannot be read counts for nothing."""
        try:
            kept = _Kept.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValidationError) as error:
            log.warning(
                "%s cannot be read, so that no pool is paused until the flow-run server answers: %s", self._path, error
            )
            return
        self._apply(kept.pools)

    async def keep(self, ask: Callable[[], Awaitable[list[WorkPoolState]]], *, every_s: float = POLL_S) -> None:
        """Ask for the work pools and obey them, for ever; while nobody answers what was last known holds."""
        while True:
            try:
                pools = seen(await ask())
            except FlowsUnavailable:
                pools = self._pools
            if pools != self._pools:
                self._apply(pools)
                await asyncio.to_thread(self._write)
            await asyncio.sleep(every_s)

    def _apply(self, pools: tuple[WorkPool, ...]) -> None:
        before, self._pools, self._orders = self._orders, pools, orders(pools, self._cards)
        self._say(before)
        self._bounds.obey(self._orders)

    def _say(self, before: Orders) -> None:
        now = self._orders
        for pool in (*self._cards, HEAD_POOL):
            order = now.by_pool.get(pool, Order())
            if order != before.by_pool.get(pool, Order()):
                log.warning("pool %s: %s", pool, _words(order))
        for name, reason in now.unusable.items():
            if before.unusable.get(name) != reason:
                log.warning("%s", reason)

    def _write(self) -> None:
        try:
            make_private_folder(self._path.parent)
            write_atomic(self._path, _Kept(pools=self._pools).model_dump_json().encode())
        except DiskFull as error:
            log.warning("what the work pools say holds until the next restart only: %s", error.message)


def _target(pool: WorkPool, cards: Collection[PoolId]) -> PoolId | None:
    """The pool of ours that it speaks of."""
    if pool.type == HEAD_TYPE:
        return HEAD_POOL if pool.name == HEAD_POOL else None
    if pool.name in cards:
        return pool.name
    return PoolId(pool.device) if pool.device is not None and pool.device in cards else None


def _unusable(pool: WorkPool, cards: Collection[PoolId]) -> str:
    if pool.type == HEAD_TYPE:
        only = f"an install has one pool of type {HEAD_TYPE}, which is '{HEAD_POOL}'"
        return f"work pool '{pool.name}' cannot be used: {only}"
    names = "names no device" if pool.device is None else f"names the device '{pool.device}', which is not here"
    known = ", ".join(sorted(cards)) or "none"
    return f"work pool '{pool.name}' {names}; give its template's variable `device` one of these as default: {known}"


def _order(pool: WorkPool) -> Order:
    place = f"in the flow-run UI (work pool '{pool.name}')"
    if pool.paused:
        return Order(f"paused {place}")
    if pool.limit == 0:
        return Order(f"its concurrency limit is 0 {place}")
    return Order(limit=pool.limit)


def _both(one: Order, other: Order) -> Order:
    limits = [order.limit for order in (one, other) if order.limit is not None]
    return Order(one.paused or other.paused, min(limits, default=None))


def _words(order: Order) -> str:
    if order.paused is not None:
        return order.paused
    return "takes what it has room for" if order.limit is None else f"does {order.limit} at once and no more"
