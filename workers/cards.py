"""The cards as pools: made once at start, looked at every few seconds for memory and heat."""

import asyncio
import logging
from collections.abc import Callable

from infra.hardware.cards import Card, CardReading
from infra.hardware.thermal import ThermalGate
from infra.settings import CardsSettings
from infra.types import PoolId
from workers.pools.card import CardPool

log = logging.getLogger("workers.cards")


def card_pools(
    cards: tuple[Card, ...], settings: CardsSettings, usable_backends: frozenset[str]
) -> dict[PoolId, CardPool]:
    """One pool a card. A card whose backend no engine program here supports is kept, with what to do about it."""
    pools: dict[PoolId, CardPool] = {}
    for card in cards:
        unusable = None
        if card.backend not in usable_backends:
            unusable = (
                f"the llama.cpp in use has no {card.backend} support: set llama.server_bin to a build that has, "
                "or run `coderai engines build llama`"
            )
        pools[card.id] = CardPool(card, settings.memory_reserve_mib * 2**20, unusable)
    return pools


async def watch_cards(
    pools: dict[PoolId, CardPool],
    read: Callable[[Card], CardReading],
    gates: dict[PoolId, ThermalGate],
    poll_s: float,
) -> None:
    """Read every card each `poll_s` seconds, for ever; a card that is too hot takes no new work until it is cooler."""
    while True:
        for pool in pools.values():
            pool.reading = await asyncio.to_thread(read, pool.card)
            reason = pool.reading.problem or gates[pool.id].update(pool.reading.temperature_c)
            if pool.hold("card", reason):
                log.warning("pool %s: %s", pool.id, pool.paused or "takes work again")
                pool.changed()
        await asyncio.sleep(poll_s)
