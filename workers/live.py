"""The live side of the cluster: engines with their counters, and the lease that a running step holds.

Only the fleet changes what stands here; everybody else sees it through a `Snapshot`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from infra.types import EngineId, Json, ModelName, PoolId
from workers.types import EngineState, EngineView, ModelEntry, Placement


@dataclass(slots=True, eq=False)
class Engine:
    """One model served at one place. `base_url` ends in `/v1`; `headers` carry the engine's own key."""

    id: EngineId
    entry: ModelEntry
    pool: PoolId
    local: bool
    slots: int
    base_url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    state: EngineState = "loading"
    incarnation: int = 0
    """Which start of its process this is; a step that failed on one may be tried on the next."""
    epoch: int = 0
    """Grows when everything that ran there is lost, so that late releases count for nothing."""
    reason: str = ""
    in_flight: int = 0
    last_used_s: float = 0.0
    memory_bytes: int = 0
    props: dict[str, Json] = field(default_factory=dict)
    """What a llama.cpp says of the model it holds (`GET /props`)."""

    @property
    def model(self) -> ModelName:
        """The model's name in the catalogue."""
        return self.entry.name

    @property
    def told_state(self) -> EngineState:
        """The state that operators are told: a far service that did not answer its last check is tried by the next
        request all the same, and down until then."""
        return "down" if not self.local and self.reason else self.state

    def view(self, paused: str | None = None, full: str | None = None) -> EngineView:
        """What the router may see; `paused` and `full` are its pool's."""
        return EngineView(
            self.id,
            self.entry.name,
            self.pool,
            self.state,
            self.slots,
            self.in_flight,
            self.local,
            self.incarnation,
            self.reason,
            paused,
            full,
        )


@dataclass(slots=True, eq=False)
class Lease:
    """One slot of one engine, from now until `release`; bound to the process that it was given for."""

    engine: Engine
    incarnation: int
    epoch: int
    placement: Placement
    waited_s: float
    taken_s: float
    _give_back: Callable[["Lease"], None]
    failed: bool = False
    """Set before the release when the engine did not do the step."""
    released: bool = False

    def release(self) -> None:
        """Give the slot back; a second call does nothing."""
        if not self.released:
            self.released = True
            self._give_back(self)
