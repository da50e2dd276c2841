"""How often one may try: by address, with time, and for many addresses."""

import pytest

from api.admin.tries import Tries
from infra.errors import RateLimited


class Now:
    """A clock to be set."""

    s = 0.0

    def __call__(self) -> float:
        return self.s


def test_after_ten_bad_tries_in_a_minute_one_waits() -> None:
    now = Now()
    tries = Tries(clock=now)
    for _ in range(10):
        tries.failed("10.0.0.1")
    for _ in range(3):  # to try on costs nothing more
        with pytest.raises(RateLimited) as caught:
            tries.failed("10.0.0.1")
        assert caught.value.retry_after_s == pytest.approx(6)
    tries.failed("10.0.0.2")
    now.s = 6.1
    tries.failed("10.0.0.1")
    with pytest.raises(RateLimited):
        tries.failed("10.0.0.1")


def test_whoever_has_an_ipv6_network_has_one_bucket() -> None:
    tries = Tries(per_minute=1, clock=Now())
    tries.failed("2001:db8::1")
    with pytest.raises(RateLimited):
        tries.failed("2001:db8::ffff")
    tries.failed("2001:db8:0:1::1")
    tries.failed("")  # a client without an address: a socket file's


def test_memory_is_bounded() -> None:
    tries = Tries(per_minute=1, clock=Now())
    for number in range(5000):
        tries.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(tries._left) == 4096
