"""What each engine has delivered for a model, in items a second: an exponentially weighted mean, kept in memory."""

from typing import Final

from infra.clock import Clock, monotonic
from infra.types import EngineId, ModelName

_WEIGHT: Final = 0.3
"""Of the newest step in the mean."""
_FEW: Final = 2
"""A step of fewer items tells how long a request takes, not how fast items go."""
KNOWN_S: Final = 300.0
"""An engine that was slow gets few items or none: after this long without news it is tried like a new one."""


class Speeds:
    """Items a second by engine and model; whoever runs a step notes it."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._items_per_s: dict[tuple[EngineId, ModelName], tuple[float, float]] = {}

    def note(self, engine: EngineId, model: ModelName, items: int, seconds: float) -> None:
        """A step of so many items took so long there."""
        if items < _FEW or seconds <= 0:
            return
        speed, known = items / seconds, self.of(engine, model)
        mean = speed if known is None else known + _WEIGHT * (speed - known)
        self._items_per_s[engine, model] = mean, self._clock()

    def of(self, engine: EngineId, model: ModelName) -> float | None:
        """Items a second; None where nothing is known."""
        mean, noted_s = self._items_per_s.get((engine, model), (0.0, float("-inf")))
        return mean if self._clock() - noted_s < KNOWN_S else None
