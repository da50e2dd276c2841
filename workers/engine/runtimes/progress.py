"""How far the work on one request is: told by the thread that does it, read by whoever asks."""

from typing import NamedTuple

from infra.clock import Clock, monotonic


class Reached(NamedTuple):
    """A moment of the work: `step` of `total` in the named phase, `per_s` steps a second in it so far."""

    phase: str
    step: int
    total: int
    per_s: float
    elapsed_s: float


class Progress:
    """Of one request; each value is replaced whole, so that no lock is needed."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._began_s = self._phase_began_s = clock()
        self._now = ("waiting", 0, 0, self._began_s)

    def tell(self, phase: str, step: int, total: int) -> None:
        """`step` of `total` is done in that phase, such as `denoising`.

        A phase of one step is not counted until that is done: what was counted before stays, so that the work never
        seems to begin anew.
        """
        now_s = self._clock()
        if phase != self._now[0]:
            self._phase_began_s = now_s
        if (step, total) == (0, 1):
            step, total = self._now[1:3]
        self._now = (phase, step, total, now_s)

    def reached(self) -> Reached:
        """Where it stands."""
        phase, step, total, told_s = self._now
        seconds = told_s - self._phase_began_s
        return Reached(phase, step, total, step / seconds if seconds > 0 else 0.0, self._clock() - self._began_s)
