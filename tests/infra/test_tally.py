"""Our counts, against prometheus-client's own instruments that were told the same."""

from collections.abc import Iterable
from itertools import product

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.registry import Collector

from infra.tally import Labels, Tally, TimeTally

VALUES: tuple[Labels, ...] = (("a", "200"), ("b", "200"), ('odd " \n\\', "500"))
BOUNDS_S = (0.005, 0.1, 1.0, 2.5, 300.0)


def page(collectors: Iterable[Collector]) -> list[str]:
    """What a scrape gives, without the moment of creation, which ours do not keep."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


def test_a_tally_is_a_counter() -> None:
    ours = Tally("things", "All things.", ("key", "status"))
    theirs = Counter("things", "All things.", ("key", "status"), registry=None)
    for number, values in enumerate(VALUES * 3):
        ours.add(values, number + 0.5)
        theirs.labels(*values).inc(number + 0.5)
    ours.add(VALUES[0])
    theirs.labels(*VALUES[0]).inc()
    assert page([ours]) == page([theirs])


def test_a_time_tally_is_a_histogram() -> None:
    ours = TimeTally("wait_seconds", "A wait.", ("key", "status"), BOUNDS_S)
    theirs = Histogram("wait_seconds", "A wait.", ("key", "status"), buckets=BOUNDS_S, registry=None)
    around = (bound + off for bound in BOUNDS_S for off in (-0.001, 0.0, 0.001))
    for values, seconds in product(VALUES, (0.0, *around, 1e6)):
        ours.observe(values, seconds)
        theirs.labels(*values).observe(seconds)
    assert page([ours]) == page([theirs])


def test_a_time_tally_counts_what_it_times_where_that_is_wanted() -> None:
    ours = TimeTally("wait_seconds", "A wait.", ("key", "status"), BOUNDS_S, counter="waits")
    counter = Counter("waits", "A wait.", ("key", "status"), registry=None)
    timer = Histogram("wait_seconds", "A wait.", ("key", "status"), buckets=BOUNDS_S, registry=None)
    for values, seconds in product(VALUES, (0.0, 0.1, 1e6)):
        ours.observe(values, seconds)
        counter.labels(*values).inc()
        timer.labels(*values).observe(seconds)
    assert page([ours]) == page([counter]) + page([timer])


@pytest.mark.parametrize("empty", [Tally("a", "A.", ()), TimeTally("b_seconds", "B.", ("x",), BOUNDS_S)])
def test_what_was_never_counted_has_only_its_head(empty: Collector) -> None:
    assert all(line.startswith("#") for line in page([empty]))


def test_a_scrape_in_between_changes_nothing() -> None:
    tally = Tally("things", "All things.", ())
    tally.add(())
    first = page([tally])
    assert page([tally]) == first
    tally.add(())
    assert page([tally])[-1] == "things_total 2.0"
