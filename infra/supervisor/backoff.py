"""When a crashed child may start again, and when it may not: pure arithmetic over times."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How patient the supervisor is; all times in seconds."""

    first_delay_s: float = 0.5
    """Wait after the first crash; each further one doubles it."""
    longest_delay_s: float = 30.0
    healthy_after_s: float = 60.0
    """A process that lived this long starts the doubling anew."""
    crashes_allowed: int = 5
    """This many crashes within `crash_window_s` end in quarantine."""
    crash_window_s: float = 120.0


@dataclass(slots=True)
class Backoff:
    """The crashes of one child, as far as they still matter."""

    policy: RestartPolicy
    _delay_s: float = 0.0
    _silent_s: float = 0.0
    _crashes: list[float] = field(default_factory=list)

    def after_crash(self, started_at_s: float, now_s: float, *, silent_s: float = 0.0) -> float | None:
        """Seconds to wait before the next start, or None when the child belongs in quarantine.

        The last `silent_s` seconds were spent in waiting for a sign of life; no such time counts for anything, so that
        what always hangs is given up as soon as what always dies.
        """
        policy = self.policy
        started_at_s -= self._silent_s
        self._silent_s += silent_s
        now_s -= self._silent_s
        self._crashes = [at for at in self._crashes if now_s - at < policy.crash_window_s]
        self._crashes.append(now_s)
        if len(self._crashes) >= policy.crashes_allowed:
            return None
        if self._delay_s == 0.0 or now_s - started_at_s >= policy.healthy_after_s:
            self._delay_s = policy.first_delay_s
        else:
            self._delay_s = min(self._delay_s * 2, policy.longest_delay_s)
        return self._delay_s
