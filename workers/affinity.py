"""Which engine holds a conversation's earlier turns: a small map from its key to the engine, with an age."""

import hashlib
from collections import OrderedDict

from infra.clock import Clock, monotonic
from infra.types import EngineId, ModelName

TTL_S = 1800.0
"""Half an hour: after that a cache is taken for cold."""
LIMIT = 100_000
"""Conversations remembered; the oldest go first."""
_LONGEST_WORD = 64


def conversation_key(session: str | None, user: str | None, opening: str) -> str:
    """The conversation's key: the client's session header, else its `user` field, else a hash of the stable opening."""
    if session:
        return f"session:{_short(session)}"
    if user:
        return f"user:{_short(user)}"
    return "opening:" + _hash(opening)


def _short(text: str) -> str:
    """A client's own word, as long as it is one: a hundred thousand of these are kept."""
    return text if len(text) <= _LONGEST_WORD else _hash(text)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()


class Affinity:
    """Remembers where each conversation ran last."""

    def __init__(self, *, ttl_s: float = TTL_S, limit: int = LIMIT, clock: Clock = monotonic) -> None:
        self._ttl_s = ttl_s
        self._limit = limit
        self._clock = clock
        self._seen: OrderedDict[tuple[ModelName, str], tuple[EngineId, int, float]] = OrderedDict()

    def note(self, model: ModelName, key: str, engine: EngineId, incarnation: int) -> None:
        """The conversation has just run there."""
        self._seen[model, key] = (engine, incarnation, self._clock())
        self._seen.move_to_end((model, key))
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)

    def warm(self, model: ModelName, key: str) -> tuple[EngineId, int] | None:
        """The engine, with its incarnation, whose cache should hold the conversation; None when unknown or too old."""
        found = self._seen.get((model, key))
        if found is None or self._clock() - found[2] > self._ttl_s:
            return None
        return found[0], found[1]
