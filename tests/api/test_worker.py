"""The worker process: how it starts and how it ends."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

from api.worker import LAST_S, NICENESS
from tests.job_lane import CHAT, RERANK, JobLane, until


def test_it_is_not_started_by_hand() -> None:
    done = subprocess.run([sys.executable, "-m", "api.worker"], capture_output=True, text=True)
    assert done.returncode == 78
    assert "error: the worker process is started by `coderai serve`, not by hand" in done.stderr


def test_it_is_nice_before_it_imports_prefect() -> None:
    """Which costs seconds of CPU while the front answers its first requests."""
    code = "import sys, api.worker; print(any(name.split('.')[0] == 'prefect' for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_it_lets_others_go_first(quiet_lane: JobLane) -> None:
    assert quiet_lane.process is not None
    assert psutil.Process(quiet_lane.process.pid).nice() - psutil.Process().nice() == NICENESS


@pytest.mark.slow
def test_its_end_ends_its_jobs(quiet_lane: JobLane) -> None:
    """Each says so, and is retried from where it was."""
    lane = quiet_lane
    lane.engine.slow_s = 60
    run = lane.submit("chat", CHAT)
    until(lambda: lane.engine.busy, 10)
    begun = time.monotonic()
    assert lane.stop() == 0
    assert time.monotonic() - begun < LAST_S + 1
    done = lane.run(run)
    assert done["state_type"] == "CRASHED"
    assert done["state"]["message"].startswith("the worker process was stopped before the run had ended; retry it")
    until(lambda: lane.front.held == 0, 10)
    lane.engine.slow_s = 0
    lane.start()
    lane.retry(run)
    assert lane.wait(run, "COMPLETED")["run_count"] == 2


@pytest.mark.slow
def test_what_a_killed_one_left_gets_its_end(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    lane.engine.slow_s = 60
    running, cancelling = lane.submit("chat", CHAT), lane.submit("rerank", RERANK)
    until(lambda: lane.engine.busy == 2, 10)
    for run in (running, cancelling):
        until(lambda run=run: lane.run(run)["infrastructure_pid"], 5)  # type: ignore[misc]
    lane.stop(signal.SIGKILL)
    lane.set_state(cancelling, "CANCELLING")
    until(lambda: lane.front.held == 0, 10)
    lane.engine.slow_s = 0
    lane.start()
    crashed, cancelled = lane.run(running), lane.run(cancelling)
    assert (crashed["state_type"], cancelled["state_type"]) == ("CRASHED", "CANCELLED")
    assert "the worker process ended while it executed this run" in crashed["state"]["message"]


@pytest.mark.slow
def test_unchanged_deployments_are_not_written_again(quiet_lane: JobLane) -> None:
    before = quiet_lane.server.get("/deployments/name/chat/chat")["updated"]
    quiet_lane.stop()
    quiet_lane.start()
    assert quiet_lane.log.rstrip().endswith("0 deployments written")
    assert quiet_lane.server.get("/deployments/name/chat/chat")["updated"] == before


@pytest.mark.slow
def test_it_costs_next_to_nothing_while_it_waits(quiet_lane: JobLane) -> None:
    time.sleep(2)
    before, begun = quiet_lane.cpu_s(), time.monotonic()
    time.sleep(10)
    assert (quiet_lane.cpu_s() - before) / (time.monotonic() - begun) < 0.03
