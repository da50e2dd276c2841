"""How often one address may try to log in."""

import ipaddress
from collections import OrderedDict

from infra.clock import Clock, monotonic
from infra.errors import RateLimited

PER_MINUTE = 10
_ADDRESSES_MOST = 4096


class Tries:
    """Counts the tries that failed, a token bucket an address. Keys cannot be guessed: this is to keep tries cheap.

    A good key is never made to wait: behind a TLS proxy all clients have one address, and any of them could lock the
    operator out.
    """

    def __init__(self, per_minute: int = PER_MINUTE, clock: Clock = monotonic) -> None:
        self._most = float(per_minute)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def failed(self, address: str) -> None:
        """Count a try that failed.

        Raises:
            RateLimited: there were too many from this address.
        """
        now_s, rate = self._clock(), self._most / 60
        left, at_s = self._left.pop(_network(address), (self._most, now_s))
        left = min(self._most, left + (now_s - at_s) * rate)
        self._left[_network(address)] = (max(0.0, left - 1) if left >= 1 else left, now_s)
        while len(self._left) > _ADDRESSES_MOST:
            self._left.popitem(last=False)
        if left < 1:
            raise RateLimited(
                "there were too many tries to log in from this address; wait a minute", retry_after_s=(1 - left) / rate
            )


def _network(address: str) -> str:
    """An IPv4 address, or the /64 of an IPv6 one: whoever has one of these has all of them."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((ip, 64), strict=False)) if ip.version == 6 else address
