"""Counts kept in plain dicts and turned into Prometheus families when somebody scrapes.

A request touches several instruments; prometheus-client's own counters take a lock and a lookup each, which together
cost more than the request's plan. Only the front's loop writes here, so none is needed.
"""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

Labels = tuple[str, ...]


class Tally(Collector):
    """Counters by label values."""

    def __init__(self, name: str, documentation: str, labels: Labels) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = labels
        self._counts: dict[Labels, float] = {}

    def add(self, values: Labels, amount: float = 1.0) -> None:
        """Count."""
        self._counts[values] = self._counts.get(values, 0.0) + amount

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The family, as it stands."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, count in list(self._counts.items()):
            family.add_metric(values, count)
        yield family


class TimeTally(Collector):
    """Histograms of seconds by label values; `counter` names a counter of the same events to show beside them."""

    def __init__(
        self, name: str, documentation: str, labels: Labels, bounds_s: tuple[float, ...], *, counter: str | None = None
    ) -> None:
        self._name = name
        self._counter = counter
        self._documentation = documentation
        self._labels = labels
        self._bounds_s = bounds_s
        self._cells: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, values: Labels, seconds: float) -> None:
        """Count one observation."""
        cells = self._cells.get(values)
        if cells is None:
            cells = self._cells[values] = [0] * (len(self._bounds_s) + 1)
            self._sums[values] = 0.0
        cells[bisect_left(self._bounds_s, seconds)] += 1
        self._sums[values] += seconds

    def collect(self) -> Iterator[HistogramMetricFamily | CounterMetricFamily]:
        """The families, as they stand; buckets are cumulative, as Prometheus wants them."""
        if self._counter is not None:
            counter = CounterMetricFamily(self._counter, self._documentation, labels=self._labels)
            for values, cells in list(self._cells.items()):
                counter.add_metric(values, float(sum(cells)))
            yield counter
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        names = [str(bound) for bound in self._bounds_s] + ["+Inf"]
        for values, cells in list(self._cells.items()):
            running, buckets = 0, []
            for name, count in zip(names, cells, strict=True):
                running += count
                buckets.append((name, float(running)))
            family.add_metric(values, buckets, self._sums[values])
        yield family
