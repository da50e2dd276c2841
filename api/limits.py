"""Per-key limits: requests a minute (a token bucket) and requests at once."""

from dataclasses import dataclass

from infra.clock import Clock, monotonic
from infra.errors import RateLimited
from infra.settings import AuthSettings
from infra.types import KeyName


@dataclass(slots=True)
class _Account:
    tokens: float
    filled_s: float
    in_flight: int = 0


class KeyLimits:
    """Counts each key's requests. `enter` before the work, `leave` after it."""

    def __init__(self, settings: AuthSettings, clock: Clock = monotonic) -> None:
        self._per_minute = settings.requests_per_minute
        self._at_once = settings.requests_in_flight
        self._clock = clock
        self._accounts: dict[KeyName, _Account] = {}

    def enter(self, key: KeyName) -> None:
        """Count a request in.

        Raises:
            RateLimited: the key is over one of its limits.
        """
        if not self._per_minute and not self._at_once:
            return
        now_s = self._clock()
        account = self._accounts.setdefault(key, _Account(float(self._per_minute), now_s))
        if self._at_once and account.in_flight >= self._at_once:
            raise RateLimited(
                f"this key has {account.in_flight} requests running, which is its limit; wait for one to finish",
                retry_after_s=1,
            )
        if self._per_minute:
            rate = self._per_minute / 60
            account.tokens = min(float(self._per_minute), account.tokens + (now_s - account.filled_s) * rate)
            account.filled_s = now_s
            if account.tokens < 1:
                raise RateLimited(
                    f"this key is over its {self._per_minute} requests a minute; slow down",
                    retry_after_s=(1 - account.tokens) / rate,
                )
            account.tokens -= 1
        account.in_flight += 1

    def leave(self, key: KeyName) -> None:
        """Count a request out."""
        account = self._accounts.get(key)
        if account is not None and account.in_flight:
            account.in_flight -= 1
