"""The waits between restarts, and when they end."""

from infra.supervisor.backoff import Backoff, RestartPolicy


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(RestartPolicy(crashes_allowed=100))
    delays = [backoff.after_crash(float(at), float(at)) for at in range(8)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_long_life_starts_anew() -> None:
    backoff = Backoff(RestartPolicy())
    assert backoff.after_crash(0.0, 1.0) == 0.5
    assert backoff.after_crash(2.0, 3.0) == 1.0
    assert backoff.after_crash(4.0, 64.0) == 0.5


def test_the_fifth_crash_within_the_window_is_the_last() -> None:
    backoff = Backoff(RestartPolicy())
    assert [backoff.after_crash(at, at) is None for at in (0.0, 29.0, 58.0, 87.0, 119.0)] == [False] * 4 + [True]


def test_crashes_outside_the_window_do_not_count() -> None:
    backoff = Backoff(RestartPolicy())
    assert all(backoff.after_crash(at, at) is not None for at in (0.0, 31.0, 62.0, 93.0, 124.0, 155.0))


def test_a_silence_counts_for_nothing() -> None:
    """One that hangs at once, and is killed a minute later, each time, is one that dies at once."""
    backoff = Backoff(RestartPolicy())
    delays, now = [], 0.0
    for _ in range(5):
        started, now = now, now + 62.0
        delays.append(backoff.after_crash(started, now, silent_s=60.0))
    assert delays == [0.5, 1.0, 2.0, 4.0, None]


def test_a_long_life_before_the_silence_starts_anew() -> None:
    backoff = Backoff(RestartPolicy())
    assert backoff.after_crash(0.0, 61.0, silent_s=60.0) == 0.5
    assert backoff.after_crash(61.0, 122.0, silent_s=60.0) == 1.0
    assert backoff.after_crash(122.0, 250.0, silent_s=60.0) == 0.5
