"""Per-key limits with a clock that the test moves."""

from dataclasses import dataclass

import pytest

from api.limits import KeyLimits
from infra.errors import RateLimited
from infra.settings import AuthSettings
from infra.types import KeyName

ANN, BOB = KeyName("ann"), KeyName("bob")


@dataclass
class Time:
    """A clock that stands still until it is moved."""

    now_s: float = 50.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


def limits(time: Time, per_minute: int = 0, at_once: int = 0) -> KeyLimits:
    return KeyLimits(AuthSettings(requests_per_minute=per_minute, requests_in_flight=at_once), time)


def refused(limits: KeyLimits, key: KeyName = ANN) -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        limits.enter(key)
    return caught.value


def test_without_limits_nothing_is_refused(time: Time) -> None:
    free = limits(time)
    for _ in range(1000):
        free.enter(ANN)
    free.leave(ANN)


def test_a_minute_s_requests_may_come_at_once_and_flow_back_evenly(time: Time) -> None:
    bucket = limits(time, per_minute=6)
    for _ in range(6):
        bucket.enter(ANN)
    error = refused(bucket)
    assert error.retry_after_s == pytest.approx(10)
    assert "6 requests a minute" in error.message
    time.now_s += 9.9
    assert refused(bucket).retry_after_s == pytest.approx(0.1)
    time.now_s += 0.2
    bucket.enter(ANN)
    assert refused(bucket).retry_after_s == pytest.approx(9.9)


def test_who_comes_back_when_told_is_let_in(time: Time) -> None:
    bucket = limits(time, per_minute=7)
    for _ in range(7):
        bucket.enter(ANN)
    for _ in range(20):
        wait_s = refused(bucket).retry_after_s
        assert wait_s is not None
        time.now_s += wait_s + 1e-9
        bucket.enter(ANN)


def test_a_long_rest_saves_up_no_more_than_a_minute(time: Time) -> None:
    bucket = limits(time, per_minute=2)
    bucket.enter(ANN)
    time.now_s += 86_400
    bucket.enter(ANN)
    bucket.enter(ANN)
    refused(bucket)


def test_refusals_cost_nothing(time: Time) -> None:
    bucket = limits(time, per_minute=1)
    bucket.enter(ANN)
    for _ in range(59):
        time.now_s += 1
        refused(bucket)
    time.now_s += 1.001
    bucket.enter(ANN)


def test_requests_at_once(time: Time) -> None:
    counted = limits(time, at_once=2)
    counted.enter(ANN)
    counted.enter(ANN)
    error = refused(counted)
    assert "2 requests running" in error.message
    assert error.retry_after_s == 1
    counted.leave(ANN)
    counted.enter(ANN)
    refused(counted)


def test_a_request_over_the_one_limit_does_not_count_for_the_other(time: Time) -> None:
    both = limits(time, per_minute=2, at_once=1)
    both.enter(ANN)
    refused(both)
    both.leave(ANN)
    both.enter(ANN)
    both.leave(ANN)
    refused(both)
    time.now_s += 31
    both.enter(ANN)


def test_keys_are_apart(time: Time) -> None:
    counted = limits(time, per_minute=1, at_once=1)
    counted.enter(ANN)
    refused(counted)
    counted.enter(BOB)


def test_leaving_more_often_than_entering_gives_no_credit(time: Time) -> None:
    counted = limits(time, at_once=1)
    counted.leave(BOB)
    counted.enter(ANN)
    counted.leave(ANN)
    counted.leave(ANN)
    counted.enter(ANN)
    refused(counted)
