"""CPU, latency and memory of the front beside a bare proxy and other gateways, in one run with alternated rounds.

`python -m benchmarks [--quick] [--only ours,bare] [--rounds N] [--seconds S] [--json FILE]` prints one table.
"""

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil

from benchmarks import cpu, report
from benchmarks.load import Case, Measured
from benchmarks.systems import DIRECT, NAMES, Absent, LoadGenerator, System, running_upstream, start
from benchmarks.upstream import MODEL

CASES = tuple(report.CaseKind(stream, in_flight) for stream in (False, True) for in_flight in (1, 32))


@dataclass(frozen=True)
class Plan:
    """How long to measure. Seconds are of one case in one round."""

    rounds: int
    plain_s: float
    stream_s: float
    warm_s: float


FULL = Plan(rounds=5, plain_s=3.0, stream_s=6.0, warm_s=0.7)
QUICK = Plan(rounds=3, plain_s=1.0, stream_s=2.0, warm_s=0.3)


def case_for(system: System, kind: report.CaseKind, seconds: float) -> Case:
    """The request of one kind, addressed to one system."""
    request: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "Say a word fifty times."}]}
    if kind.stream:
        request |= {"stream": True, "stream_options": {"include_usage": True}}
    body = orjson.dumps(request).decode()
    return Case(
        system.port,
        body,
        kind.stream,
        kind.in_flight,
        seconds=seconds,
        spread_s=kind.scheduled_us / 1e6,
        api_key=system.api_key,
    )


def measure(load: LoadGenerator, system: System, kind: report.CaseKind, plan: Plan) -> report.Sample:
    """One case of one system in one round.

    The install is idle before the first reading and after the last, so that what a request leaves to be done behind
    its answer is charged to it, and nothing else is.
    """
    load.drive(case_for(system, kind, plan.warm_s))
    cpu.drain(system.root_pid, system.front_pid)
    before = cpu.used(system.root_pid, system.front_pid)
    measured = load.drive(case_for(system, kind, plan.stream_s if kind.stream else plan.plain_s))
    drained = cpu.drain(system.root_pid, system.front_pid)
    used = cpu.used(system.root_pid, system.front_pid) - before
    return _sample(measured, used, drained)


def _sample(measured: Measured, used: cpu.Used, drained: bool) -> report.Sample:
    answered = measured.good + measured.bad
    complaints = dict(measured.complaints)
    if not drained:
        complaints["still busy 30 s after the load"] = 1
    return report.Sample(
        front_us=used.front_us / answered if answered else 0.0,
        others_us=used.others_us / answered if answered else 0.0,
        p50_us=measured.p50_us,
        p99_us=measured.p99_us,
        per_second=measured.per_second,
        good=measured.good,
        bad=measured.bad,
        complaints=complaints,
    )


def idle_us_per_s(system: System, seconds: float) -> float:
    """CPU microseconds a second that a whole install takes with nothing to do."""
    cpu.drain(system.root_pid, system.front_pid)
    before = cpu.used(system.root_pid, system.front_pid)
    time.sleep(seconds)
    spent = cpu.used(system.root_pid, system.front_pid) - before
    return (spent.front_us + spent.others_us) / seconds


def run(names: list[str], plan: Plan) -> report.Results:
    """Start everything, measure in alternated rounds, stop everything."""
    results = report.Results()
    with ExitStack() as stack:
        upstream, port = stack.enter_context(running_upstream(interval_ms=report.INTERVAL_MS))
        load = stack.enter_context(LoadGenerator())
        started = [start(name, upstream, port, stack) for name in names]
        systems = [each for each in started if isinstance(each, System)]
        results.absent = {each.name: each.reason for each in started if isinstance(each, Absent)}
        results.idle_us_per_s = {each.name: idle_us_per_s(each, 3.0) for each in systems}
        for number in range(plan.rounds):
            _round(load, systems[number % len(systems) :] + systems[: number % len(systems)], plan, results)
            print(f"round {number + 1} of {plan.rounds} done", file=sys.stderr, flush=True)
        systems = [each for each in systems if each.name not in results.absent]
        results.memory = {each.name: cpu.memory(each.root_pid, each.front_pid) for each in systems}
    return results


def _round(load: LoadGenerator, systems: list[System], plan: Plan, results: report.Results) -> None:
    """All cases once, each on all systems in turn; a system whose process is gone takes no further part."""
    for kind in CASES:
        for system in systems:
            if system.name in results.absent:
                continue
            try:
                results.add(system.name, kind, measure(load, system, kind, plan))
            except (psutil.NoSuchProcess, ProcessLookupError):
                results.absent[system.name] = f"its process ended during: {kind.label}"


def main() -> None:
    """Parse the command line, run, print the table."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="three short rounds: for a look, not for a document")
    arguments.add_argument("--only", default=",".join(NAMES), help=f"some of {','.join(NAMES)}; direct always runs")
    arguments.add_argument("--rounds", type=int, default=0, help="rounds; the median counts")
    arguments.add_argument("--json", type=Path, help="write every sample here")
    given = arguments.parse_args()
    wanted = [DIRECT, *given.only.split(",")]
    unknown = sorted(set(wanted) - set(NAMES))
    if unknown:
        arguments.error(f"no such system: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    plan = QUICK if given.quick else FULL
    if given.rounds:
        plan = Plan(given.rounds, plan.plain_s, plan.stream_s, plan.warm_s)
    results = run([name for name in NAMES if name in wanted], plan)
    print(report.render(results, f"{plan.rounds} rounds, {plan.plain_s:g} s plain, {plan.stream_s:g} s streamed each"))
    if given.json:
        given.json.write_bytes(orjson.dumps(results.raw(), option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
