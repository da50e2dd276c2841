"""The tables: medians over rounds, ratios within the run, and a plain word where a number means nothing."""

import platform
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import psutil

from benchmarks.cpu import Memory
from benchmarks.systems import BARE, DIRECT, OURS
from benchmarks.upstream import CHUNKS

INTERVAL_MS = 10.0
NOISE_RATIO = 5.0
"""A direct p99 above this many times the direct p50 is the machine's noise, and so is every p99 beside it."""
NOT_MEASURABLE = "not measurable here"
LITELLM = "litellm"
_GOAL_COLUMNS = 5
_HEAD = [
    "case",
    "system",
    "CPU µs/req",
    "other processes",
    "÷ bare",
    "LiteLLM ÷ it",
    "p50 ms",
    "added p50 ms",
    "p99 ms",
    "req/s",
    "bad answers",
]


@dataclass(frozen=True)
class CaseKind:
    """One kind of load."""

    stream: bool
    in_flight: int

    @property
    def label(self) -> str:
        """For people, and the key in the raw results."""
        return f"{f'{CHUNKS}-chunk SSE' if self.stream else 'plain'}, {self.in_flight} in flight"

    @property
    def scheduled_us(self) -> float:
        """What the upstream itself takes over an answer, by design."""
        return (CHUNKS - 1) * INTERVAL_MS * 1000 if self.stream else 0.0


@dataclass(frozen=True)
class Sample:
    """One case of one system in one round; CPU and latency in microseconds a request."""

    front_us: float
    others_us: float
    p50_us: float
    p99_us: float
    per_second: float
    good: int
    bad: int
    complaints: dict[str, int]


@dataclass
class Results:
    """Everything that was measured, by system."""

    samples: dict[str, dict[CaseKind, list[Sample]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    idle_us_per_s: dict[str, float] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)

    def add(self, system: str, kind: CaseKind, sample: Sample) -> None:
        """Keep one sample."""
        self.samples.setdefault(system, {}).setdefault(kind, []).append(sample)

    def raw(self) -> dict[str, object]:
        """Everything, for a JSON file."""
        samples = {
            system: {kind.label: [asdict(sample) for sample in kept] for kind, kept in kinds.items()}
            for system, kinds in self.samples.items()
        }
        memory = {name: asdict(of) for name, of in self.memory.items()}
        return {"samples": samples, "absent": self.absent, "idle_us_per_s": self.idle_us_per_s, "memory": memory}

    def median(self, system: str, kind: CaseKind, what: Callable[[Sample], float]) -> float | None:
        """The median over the rounds that gave any good answer; None where no round did."""
        values = [what(each) for each in self.samples.get(system, {}).get(kind, []) if each.good]
        return statistics.median(values) if values else None

    def front_us(self, system: str, kind: CaseKind) -> float | None:
        """Median CPU of the front process a request; None for the upstream itself."""
        return None if system == DIRECT else self.median(system, kind, lambda sample: sample.front_us)


def render(results: Results, how: str) -> str:
    """The whole report in Markdown."""
    machine = f"{psutil.cpu_count()} logical cores, {platform.machine()}, Python {platform.python_version()}"
    kinds = list(results.samples.get(DIRECT, {}))
    lines = [f"{machine}; {how}; medians of rounds. CPU is utime + stime of the front process with its threads.", ""]
    lines += _table(
        _HEAD,
        [_row(results, kind, system) for kind in kinds for system in results.samples],
    )
    lines += [f"* {name}: {' '.join(reason.split())[-400:]}" for name, reason in results.absent.items()]
    lines += ["", *_memory(results), "", *_complaints(results), *_targets(results)]
    return "\n".join(lines)


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    rule = ["---", "---", *("---:" for _ in head[2:])]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)]


def _row(results: Results, kind: CaseKind, system: str) -> list[str]:
    own = results.front_us(system, kind)
    others = None if system == DIRECT else results.median(system, kind, lambda sample: sample.others_us)
    p50 = results.median(system, kind, lambda sample: sample.p50_us)
    p99 = results.median(system, kind, lambda sample: sample.p99_us)
    direct_p50 = results.median(DIRECT, kind, lambda sample: sample.p50_us)
    added = None if system == DIRECT or p50 is None or direct_p50 is None else p50 - direct_p50
    good = sum(each.good for each in results.samples[system][kind])
    bad = sum(each.bad for each in results.samples[system][kind])
    return [
        kind.label,
        system,
        _number(own, 1, 0),
        _number(others, 1, 0),
        _number(_ratio(own, results.front_us(BARE, kind)), 1, 2),
        _number(_ratio(results.front_us(LITELLM, kind), own), 1, 1),
        _number(p50, 1000, 2),
        _number(added, 1000, 2),
        NOT_MEASURABLE if p99_is_noise(results, kind) else _number(p99, 1000, 2),
        _number(results.median(system, kind, lambda sample: sample.per_second), 1, 1),
        f"{bad} of {good + bad}",
    ]


def p99_is_noise(results: Results, kind: CaseKind) -> bool:
    """Whether the upstream asked directly already scatters too widely; beyond what it takes by design."""
    p50 = results.median(DIRECT, kind, lambda sample: sample.p50_us)
    p99 = results.median(DIRECT, kind, lambda sample: sample.p99_us)
    if p50 is None or p99 is None:
        return True
    return p99 - kind.scheduled_us > NOISE_RATIO * max(p50 - kind.scheduled_us, 1.0)


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _number(value: float | None, divisor: float, digits: int) -> str:
    return "–" if value is None else f"{value / divisor:.{digits}f}"


def _memory(results: Results) -> list[str]:
    rows = [
        [
            name,
            f"{of.front_rss_mib:.0f}",
            f"{of.front_pss_mib:.0f}",
            f"{of.install_pss_mib:.0f}",
            _number(results.idle_us_per_s.get(name), 1, 0),
        ]
        for name, of in results.memory.items()
        if name != DIRECT
    ]
    head = ["system", "front RSS MiB", "front PSS MiB", "whole install PSS MiB", "idle CPU µs/s"]
    return _table(head, rows)


def _complaints(results: Results) -> list[str]:
    lines = []
    for system, kinds in results.samples.items():
        for kind, samples in kinds.items():
            for what in sorted({what for sample in samples for what in sample.complaints}):
                times = sum(sample.complaints.get(what, 0) for sample in samples)
                lines.append(f"* {system}, {kind.label}: {what} ({times} times)")
    return [*lines, ""] if lines else []


def _targets(results: Results) -> list[str]:
    """What the project set itself, beside what came out."""
    if OURS not in results.samples:
        return []
    rows: list[list[str]] = []
    for kind in results.samples[OURS]:
        own, bare, litellm = (results.front_us(name, kind) for name in (OURS, BARE, LITELLM))
        rows.append(_goal(f"CPU ÷ bare, {kind.label}", _ratio(own, bare), 1.3 if kind.stream else 1.5, most=True))
        least = 20.0 if kind.in_flight == 1 else 40.0
        rows.append(_goal(f"LiteLLM's CPU ÷ ours, {kind.label}", _ratio(litellm, own), least, most=False))
        rows[-1].append(f"the bare proxy: {_number(_ratio(litellm, bare), 1, 2)}")
    rows.append(_goal("added p50 ms, plain, 1 in flight", _added_p50_ms(results), 1.0, most=True))
    resident = results.memory.get(OURS)
    rows.append(_goal("front RSS MiB", resident.front_rss_mib if resident else None, 120.0, most=True))
    rows = [row if len(row) > _GOAL_COLUMNS - 1 else [*row, ""] for row in rows]
    return _table(["goal", "wanted", "measured", "met", "beside it"], rows)


def _added_p50_ms(results: Results) -> float | None:
    kind = CaseKind(stream=False, in_flight=1)
    own = results.median(OURS, kind, lambda sample: sample.p50_us)
    direct = results.median(DIRECT, kind, lambda sample: sample.p50_us)
    return None if own is None or direct is None else (own - direct) / 1000


def _goal(name: str, value: float | None, limit: float, *, most: bool) -> list[str]:
    wanted = f"{'≤' if most else '≥'} {limit:g}"
    if value is None:
        return [name, wanted, "–", "not measured"]
    return [name, wanted, f"{value:.2f}", "yes" if (value <= limit) == most or value == limit else "no"]
