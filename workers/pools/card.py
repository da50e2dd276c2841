"""A local card as a work pool: what it has, what is reserved on it, and how a model is launched there."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from infra.hardware.cards import Card, CardReading
from infra.settings import LlamaSettings
from infra.types import EngineId, PoolId
from workers.types import ModelEntry, PoolView
from workers.wire import EngineLaunch


@dataclass(slots=True, eq=False)
class CardPool:
    """One card. `reserved` holds the bytes that each engine on it was admitted with; those of `loading` are not yet
    seen by a measurement."""

    card: Card
    reserve_bytes: int
    unusable: str | None = None
    paused: str | None = None
    """Why it takes no new work; set by `hold`."""
    changed: Callable[[], None] = lambda: None
    """To be called after `hold`: who waits for the card may have to look elsewhere, or get in."""
    reading: CardReading | None = None
    reserved: dict[EngineId, int] = field(default_factory=dict)
    loading: set[EngineId] = field(default_factory=set)
    _holds: dict[str, str] = field(default_factory=dict, init=False)

    def hold(self, by: Literal["card", "operator"], reason: str | None) -> bool:
        """Say why it takes no new work, or by None that for this one's part it may. Each has a say of his own.

        Returns whether he had held it before and does not now, or the other way round.
        """
        held = self._holds.pop(by, None) is not None
        if reason is not None:
            self._holds[by] = reason
        self.paused = "; ".join(self._holds.values()) or None
        return held == (reason is None)

    @property
    def id(self) -> PoolId:
        """The pool's name: the card's."""
        return self.card.id

    @property
    def free_bytes(self) -> int:
        """What a new model may take: the smaller of what the ledger and what the last measurement leave."""
        return max(0, self.balance_bytes)

    @property
    def balance_bytes(self) -> int:
        """The same with its debts: below zero while a model is promised what another has not left yet."""
        by_ledger = self.card.total_bytes - self.reserve_bytes - sum(self.reserved.values())
        if self.reading is None or self.reading.free_bytes is None:
            return by_ledger
        unseen_bytes = sum(self.reserved.get(engine, 0) for engine in self.loading)
        return min(by_ledger, self.reading.free_bytes - self.reserve_bytes - unseen_bytes)

    def view(self, reclaimable_bytes: int) -> PoolView:
        """What the router may see."""
        return PoolView(
            pool=self.id,
            backend=self.card.backend,
            total_bytes=self.card.total_bytes,
            free_bytes=self.free_bytes,
            reclaimable_bytes=reclaimable_bytes,
            reserve_bytes=self.reserve_bytes,
            unusable=self.unusable,
            paused=self.paused,
        )

    def launch(self, engine: EngineId, entry: ModelEntry, settings: LlamaSettings, threads: int) -> EngineLaunch:
        """How the model is started here."""
        return EngineLaunch(
            engine=engine,
            entry=entry,
            pool=self.id,
            backend=self.card.backend,
            env=dict(self.card.env),
            slots=entry.max_instances,
            context_tokens=slot_context_tokens(entry, settings),
            threads=settings.threads or threads,
            cache_ram_mib=settings.cache_ram_mib,
        )


def slot_context_tokens(entry: ModelEntry, settings: LlamaSettings) -> int:
    """Context of one slot, in tokens: the entry's own, never beyond `llama.context_tokens` unless it says so."""
    return entry.context_tokens or settings.context_tokens
