"""Whether the front's memory stays flat over many requests: `python -m benchmarks.memory [--requests 100000]`."""

import argparse
import sys
from contextlib import ExitStack

from benchmarks import cpu
from benchmarks.proxy_overhead import case_for
from benchmarks.report import CaseKind
from benchmarks.systems import BARE, OURS, Absent, LoadGenerator, System, running_upstream, start

STEPS = 10
_FLAT_MIB = 5.0
"""Growth between the first tenth, when caches have filled, and the end that still counts as flat."""


def measure(name: str, requests: int, in_flight: int) -> list[tuple[int, float, int]]:
    """(requests so far, resident MiB of the front, bad answers so far), ten times and once before.

    Raises:
        SystemExit: the system could not be started; with the reason.
    """
    rows: list[tuple[int, float, int]] = []
    bad = 0
    with ExitStack() as stack:
        upstream, port = stack.enter_context(running_upstream(interval_ms=0))
        load = stack.enter_context(LoadGenerator())
        system = start(name, upstream, port, stack)
        if isinstance(system, Absent):
            sys.exit(f"{name}: {system.reason}")
        rows.append((0, _resident_mib(system), 0))
        for step in range(1, STEPS + 1):
            case = case_for(system, CaseKind(stream=step % 2 == 0, in_flight=in_flight), seconds=0)
            measured = load.drive(type(case)(**{**vars(case), "requests": requests // STEPS, "spread_s": 0.0}))
            bad += measured.bad
            cpu.drain(system.root_pid, system.front_pid)
            rows.append((step * (requests // STEPS), _resident_mib(system), bad))
            print(f"{rows[-1][0]} requests: {rows[-1][1]:.1f} MiB", file=sys.stderr, flush=True)
    return rows


def _resident_mib(system: System) -> float:
    return cpu.memory(system.root_pid, system.front_pid).front_rss_mib


def main() -> None:
    """Measure and print one table; every other tenth of the requests is streamed."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    arguments.add_argument("--requests", type=int, default=100_000)
    arguments.add_argument("--in-flight", type=int, default=16)
    arguments.add_argument("--system", choices=(OURS, BARE), default=OURS)
    given = arguments.parse_args()
    rows = measure(given.system, given.requests, given.in_flight)
    print("| requests | front RSS MiB | bad answers |\n| ---: | ---: | ---: |")
    for requests, resident, bad in rows:
        print(f"| {requests} | {resident:.1f} | {bad} |")
    grown = rows[-1][1] - rows[1][1]
    print(f"\n{grown:+.1f} MiB after the first tenth: {'flat' if grown <= _FLAT_MIB else 'NOT flat'}")


if __name__ == "__main__":
    main()
