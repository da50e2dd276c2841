"""What it costs that every request is a flow run: `python -m benchmarks.recording [--requests 5000] [--many 100000]`.

On the path: the front's CPU with the spool off and on, in alternated rounds. Behind it: the flow-run server's CPU for
each run until the spool is empty, with the server killed half-way. Then the seconds that an operator waits for.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Thread

import orjson

from benchmarks import cpu
from benchmarks.exchange import post
from benchmarks.flow_runs import FRONT, PREFECT, REAL, WORKER, Recorded, wait
from benchmarks.load import Measured
from benchmarks.proxy_overhead import case_for
from benchmarks.report import CaseKind
from benchmarks.systems import LoadGenerator, System, running_upstream, start_ours
from benchmarks.upstream import MODEL
from infra.records import Attempt, RunRecord, StepRecord
from infra.types import EngineId, KeyName, ModelName, PoolId, new_run_id

IN_FLIGHT = 32
_WITHOUT, _WITH = {"RECORD__SPOOL": "false"}, {"RECORD__SPOOL": "true"}
_TALK: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "Say a word fifty times."}]}
_LONG: dict[str, object] = {**_TALK, "model": REAL, "max_tokens": 3000, "ignore_eos": True}
_QUESTIONS: tuple[tuple[str, object], ...] = (
    ("/flow_runs/paginate", {"sort": "START_TIME_DESC", "limit": 50, "page": 1}),
    ("/flow_runs/count", {}),
)
"""What the run list asks for when it is opened."""


def row(what: str, seen: str, goal: str) -> None:
    """One line of the table."""
    print(f"| {what} | {seen} | {goal} |", flush=True)


def on_the_path(load: LoadGenerator, stack: ExitStack, upstream_port: int, rounds: int) -> None:
    """The front's CPU a request with the spool off and on."""
    scratch = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coderai-bench-"))) for _ in range(2)]
    off, on = (
        start_ours(upstream_port, each, stack, how) for each, how in zip(scratch, (_WITHOUT, _WITH), strict=True)
    )
    for in_flight in (1, IN_FLIGHT):
        kind = CaseKind(stream=False, in_flight=in_flight)
        for system in (off, on):
            load.drive(case_for(system, kind, 1.0))
        extra = [_cost_us(load, on, kind) - _cost_us(load, off, kind) for _ in range(rounds)]
        row(f"on the path, {in_flight} in flight", f"{statistics.median(extra):.0f} µs of CPU a request", "≤ 150 µs")


def _cost_us(load: LoadGenerator, system: System, kind: CaseKind) -> float:
    before = cpu.cpu_us(system.front_pid)
    measured = load.drive(case_for(system, kind, 1.5))
    return (cpu.cpu_us(system.front_pid) - before) / max(1, measured.good + measured.bad)


def behind(load: LoadGenerator, served: Recorded, requests: int) -> None:
    """The server's CPU a run, and how many it takes in a second."""
    before_us = served.cpu_us(PREFECT)
    _drive(load, served, requests)
    seconds = served.wait_until_drained(within_s=600)
    spent_us = served.cpu_us(PREFECT) - before_us
    row("behind the path", f"{spent_us / requests / 1000:.2f} ms of CPU a run", "≤ 5 ms")
    row("drained, after the load", f"{served.runs_of('chat') / max(seconds, 0.1):.0f} runs/s at least", "≥ 60")


def killed_half_way(load: LoadGenerator, served: Recorded, requests: int) -> None:
    """The server is killed in the middle of the load: what it has afterwards."""
    before = served.runs_of("chat")
    answers: list[Measured] = []
    loading = Thread(target=lambda: answers.append(_drive(load, served, requests)))
    loading.start()
    wait(lambda: served.runs_of("chat") > before, 60, "first run of the load")
    os.kill(served.install.child_pid(PREFECT), signal.SIGKILL)
    loading.join()
    served.wait_until_up()
    served.wait_until_drained(within_s=600)
    row(
        f"{requests} requests, server killed in the middle",
        f"{answers[0].good} good answers, {served.runs_of('chat') - before} runs",
        f"{requests} of each",
    )


def _drive(load: LoadGenerator, served: Recorded, requests: int) -> Measured:
    system = System("ours", served.install.port, served.key, served.install.pid, served.install.front_pid())
    case = case_for(system, CaseKind(stream=False, in_flight=IN_FLIGHT), seconds=0)
    return load.drive(replace(case, requests=requests, spread_s=0.0))


def an_operator_waits(served: Recorded, rounds: int) -> None:
    """Seconds from a click, or a job's submission, to what it is for."""
    starts, cancels, retries = [], [], []
    for _ in range(rounds):
        began = time.monotonic()
        run = served.submit_job(_LONG)
        wait(lambda run=run: served.state(run)[0] == "Running", 60, "running job", 0.02)  # type: ignore[misc]
        starts.append(time.monotonic() - began)
        wait(served.in_flight, 60, "job in an engine", 0.02)
        cancels.append(_timed(lambda run=run: served.set_state(run, "CANCELLING", "Cancelling"), _idle(served)))  # type: ignore[misc]
        wait(lambda run=run: served.state(run)[0] == "Cancelled", 60, "cancelled job", 0.02)  # type: ignore[misc]
        retried: Callable[[], bool] = lambda run=run: served.state(run) == ("Running", 2)  # type: ignore[misc]  # noqa: E731
        retries.append(_timed(lambda run=run: served.set_state(run, "SCHEDULED", "AwaitingRetry"), retried))  # type: ignore[misc]
        served.set_state(run, "CANCELLING", "Cancelling")
        wait(_idle(served), 60, "free slot")
    row("job submitted to running", f"{statistics.median(starts):.2f} s", "≤ 1 s")
    row("cancel to free slot", f"{statistics.median(cancels):.2f} s", "≤ 2 s")
    row("retry to running", f"{statistics.median(retries):.2f} s", "≤ 3 s")


def _idle(served: Recorded) -> Callable[[], bool]:
    return lambda: not served.in_flight()


def _timed(act: Callable[[], None], until: Callable[[], bool]) -> float:
    began = time.monotonic()
    act()
    wait(until, 60, "effect", 0.02)
    return time.monotonic() - began


def idle(served: Recorded, seconds: float) -> None:
    """What the processes take that nobody asks anything."""
    pids = [served.install.pid, *(served.install.child_pid(module) for module in (PREFECT, WORKER))]
    before = [cpu.cpu_us(pid) for pid in pids]
    time.sleep(seconds)
    shares = [(cpu.cpu_us(pid) - was) / seconds / 1e4 for pid, was in zip(pids, before, strict=True)]
    words = ", ".join(
        f"{name} {share:.1f}" for name, share in zip(("supervisor", "server", "worker"), shares, strict=True)
    )
    row("idle", f"{sum(shares):.1f} % of a core ({words})", "≤ 10 %")


def many(served: Recorded, runs: int) -> None:
    """The run list of the UI with so many runs, as its own requests ask for it."""
    spool = served.install.home / "spool"
    for number in range(0, runs, 1000):
        lines = b"".join(_record(number + each).line() for each in range(min(1000, runs - number)))
        path = spool / f"{time.time_ns()}.tmp"
        path.write_bytes(lines)
        path.rename(path.with_suffix(".seg"))
    seconds = served.wait_until_drained(within_s=3000)
    row(f"{runs} runs taken in", f"{runs / seconds:.0f} runs/s", "≥ 60")
    for question, body in _QUESTIONS:
        took = [_timed_post(served, question, body) for _ in range(5)]
        row(f"{runs} runs, {question}", f"{statistics.median(took):.2f} s", "≤ 2 s for the page")


def _timed_post(served: Recorded, question: str, body: object) -> float:
    began = time.monotonic()
    answer = post(served.install.port, f"/flows/api{question}", orjson.dumps(body), served.key)
    assert answer.status == 200, answer.text
    return time.monotonic() - began


def _record(number: int) -> RunRecord:
    at = time.time() - number * 0.5
    tried = Attempt(PoolId("cpu"), EngineId(f"cpu/{REAL}"), 1, "resident", [], at, at + 0.4)
    step = StepRecord("generate", "generate", (), "completed", [tried])
    return RunRecord(
        new_run_id(),
        "chat",
        ModelName(REAL),
        KeyName("bench"),
        at,
        [step],
        at + 0.4,
        prompt_tokens=9,
        completion_tokens=9,
    )


def main() -> None:
    """Measure everything, print one table."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.recording", description=__doc__)
    arguments.add_argument("--requests", type=int, default=5000)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--many", type=int, default=0, help="also time the run list with so many runs")
    given = arguments.parse_args()
    print("| what | seen | goal |\n|---|---|---|")
    with ExitStack() as stack:
        _upstream, port = stack.enter_context(running_upstream(interval_ms=0))
        load = stack.enter_context(LoadGenerator())
        with ExitStack() as both:
            on_the_path(load, both, port, given.rounds)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coderai-bench-"))) / "home"
        served = stack.enter_context(Recorded(home, port))
        print(f"front {served.install.child_pid(FRONT)}", file=sys.stderr)
        idle(served, 30)
        an_operator_waits(served, 5)
        behind(load, served, given.requests)
        killed_half_way(load, served, given.requests)
        if given.many:
            many(served, given.many)


if __name__ == "__main__":
    main()
