"""A real worker process between a real Prefect child and a fake front, for all tests of a session that need it.

Mark them `slow`. Tests find everything as a fresh start leaves it, and leave it so.
"""

import asyncio
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.run_files import RunFiles
from infra.settings import inherited_environment, load_settings
from tests.fakes_front import FakeEngine, FakeFront
from tests.prefect_server import PrefectServer
from workers.jobs.spec import worker_spec

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
RERANK = {"model": "m", "query": "q", "documents": ["a", "b"]}
DONE = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
_ROOT = Path(__file__).parents[1]
_START_S = 60.0


@dataclass
class JobLane:
    """The three, and what a person can do with them through Prefect's API."""

    server: PrefectServer
    front: FakeFront
    engine: FakeEngine
    home: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def files(self) -> RunFiles:
        """What the jobs keep."""
        return RunFiles(self.home)

    @property
    def log(self) -> str:
        """What the worker process wrote."""
        return (self.home / "worker.log").read_text()

    def start(self) -> None:
        """Start the process, and wait until it listens."""
        spec = worker_spec(load_settings(home=self.home), self.server.url, self.server.internal_token)
        environment = inherited_environment() | spec.env | spec.secret_env
        mark = self.log.count("jobs run on the pools") if (self.home / "worker.log").exists() else 0
        with (self.home / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(
                spec.argv, env=environment, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(lambda: self._alive() and self.log.count("jobs run on the pools") > mark, _START_S)

    def stop(self, kind: int = signal.SIGTERM) -> int:
        """End the process with a signal; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(kind)
        code = self.process.wait(10)
        self.process = None
        return code

    def cpu_s(self) -> float:
        """The CPU seconds that the process has used."""
        assert self.process is not None
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def deployment(self, flow: str) -> str:
        """The id of a flow's own deployment."""
        return str(self.server.get(f"/deployments/name/{flow}/{flow}")["id"])

    def submit(self, flow: str, request: Any, tags: tuple[str, ...] = (), deployment: str | None = None) -> str:
        """A new run; returns its id."""
        body = {"parameters": {"request": request}, "tags": [*tags]}
        made = self.server.post(f"/deployments/{deployment or self.deployment(flow)}/create_flow_run", body)
        return str(made["id"])

    def set_state(self, run: str, kind: str, name: str | None = None, *, force: bool = False) -> None:
        """Wish for a state, as Prefect's pages do."""
        body = {"state": {"type": kind, "name": name}, "force": force}
        assert self.server.post(f"/flow_runs/{run}/set_state", body)["status"] == "ACCEPT"

    def suspend(self, run: str) -> None:
        """Suspend a run that the engine, held, works for; it has heard of it, then."""
        until(lambda: self.engine.busy, 20, lambda: self.log)
        state = {"type": "PAUSED", "name": "Suspended", "state_details": {"pause_reschedule": True}}
        assert self.server.post(f"/flow_runs/{run}/set_state", {"state": state})["status"] == "ACCEPT"
        until(lambda: f"run {run} is to end before its next step" in self.log, 40, lambda: self.log)

    def retry(self, run: str) -> None:
        """The button of Prefect's pages."""
        self.set_state(run, "SCHEDULED", "AwaitingRetry", force=True)

    def run(self, run: str) -> dict[str, Any]:
        """The flow run."""
        found: dict[str, Any] = self.server.get(f"/flow_runs/{run}")
        return found

    def wait(self, run: str, *kinds: str, timeout_s: float = 20.0) -> dict[str, Any]:
        """The run once it is in one of the states, by default at its end."""
        wanted = kinds or DONE
        until(lambda: self.run(run)["state_type"] in wanted, timeout_s, lambda: f"{self.run(run)['state']} {self.log}")
        return self.run(run)

    def states(self, run: str) -> list[str]:
        """The names of the states that it has been in."""
        states = self.server.get(f"/flow_run_states/?flow_run_id={run}")
        return [state["name"] for state in sorted(states, key=lambda state: str(state["timestamp"]))]

    def about(self, run: str, what: str) -> list[dict[str, Any]]:
        """Its task_runs or artifacts."""
        found: list[dict[str, Any]] = self.server.post(f"/{what}/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return found

    def lines(self, run: str) -> list[str]:
        """Its log."""
        found = self.server.post("/logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}})
        return [line["message"] for line in found]

    def pool(self, name: str) -> dict[str, Any]:
        """A work pool."""
        found: dict[str, Any] = self.server.get(f"/work_pools/{name}")
        return found

    def _alive(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        return True


def until(true: Callable[[], object], timeout_s: float, told: Callable[[], object] = str) -> None:
    """Wait for something to be true."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, told()
        time.sleep(0.02)


@contextmanager
def _fakes(home: Path, token: str) -> Iterator[tuple[FakeFront, FakeEngine]]:
    """Both on a loop of a thread of their own, so that tests may block."""
    ready, stop = threading.Event(), threading.Event()
    made: list[tuple[FakeFront, FakeEngine]] = []

    async def serve() -> None:
        async with FakeEngine() as engine, FakeFront(home, engine.url, token) as front:
            made.append((front, engine))
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield made[0]
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="session")
def job_lane(prefect_server: PrefectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobLane]:
    """The session's lane, its worker process at work."""
    home = tmp_path_factory.mktemp("lane")
    with _fakes(home, prefect_server.internal_token) as (front, engine):
        lane = JobLane(prefect_server, front, engine, home)
        lane.start()
        yield lane
        if lane.process is not None:
            lane.stop(signal.SIGKILL)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def quiet_lane(job_lane: JobLane) -> Iterator[JobLane]:
    """The lane with an engine that answers at once and has not been asked anything; afterwards nothing is held."""
    front, engine = job_lane.front, job_lane.engine
    engine.slow_s, engine.quick, engine.held, engine.broken = 0.0, 0, False, set()
    for notes in (engine.asked, engine.bodies, front.plans, front.leases, front.overs, front.cancelled):
        notes.clear()
    yield job_lane
    engine.held, engine.broken, front.sites = False, set(), ()
    until(lambda: front.held == 0, 5.0, lambda: job_lane.log)
