"""Children that live and do nothing any more: real processes, stopped or silent."""

import asyncio
import os
import signal

import pytest

from infra.supervisor.backoff import RestartPolicy
from infra.supervisor.supervise import Supervisor
from infra.supervisor.types import ChildSpec, ChildState
from tests.infra.supervisor.programs import BEATING, alive, until
from tests.infra.supervisor.test_supervise import SOON, Bench, bench, spec

__all__ = ["bench"]


def pulsing(code: str) -> ChildSpec:
    return spec(code).model_copy(update={"pulse": True})


async def test_a_child_that_is_stopped_is_ended_and_started_again(bench: Bench) -> None:
    seen: list[ChildState] = []
    bench.supervisor.subscribe(seen.append)
    first = await bench.supervisor.start(pulsing(BEATING))
    await asyncio.sleep(4)
    now = bench.state()
    assert (now.pid, now.incarnation) == (first.pid, 1), "as long as it beats it is let alone"
    assert first.pid is not None
    os.kill(first.pid, signal.SIGSTOP)
    await until(lambda: len(seen) == 3)
    second = bench.state()
    assert (second.status, second.incarnation) == ("running", 2)
    assert second.reason == "killed by SIGKILL after 3 s without a sign of life"
    assert not alive(first.pid)
    assert [state.status for state in seen] == ["running", "backoff", "running"]
    assert bench.lines == [("x", f"ended and starts again in 0.02 s: {second.reason}")]


async def test_a_child_that_never_gives_a_sign_of_life_is_ended_later(bench: Bench) -> None:
    await bench.supervisor.start(pulsing("import time; print('at work', flush=True); time.sleep(600)"))
    await until(lambda: bench.state().incarnation == 2)
    assert bench.state().reason == "killed by SIGKILL after 6 s without a sign of life: at work"


@pytest.mark.timeout(60)
async def test_who_always_hangs_is_given_up_like_who_always_dies(bench: Bench) -> None:
    once = "import os, time; os.write(int(os.environ['CODERAI_PULSE_FD']), b'.'); time.sleep(600)"
    policy = RestartPolicy(first_delay_s=0.02, longest_delay_s=0.05, crash_window_s=60.0)
    supervisor = Supervisor(bench.guard, lambda *_: None, policy=policy, pulse=SOON)
    await supervisor.start(pulsing(once))
    await until(lambda: supervisor.states()["x"].status == "quarantined", 50)
    assert supervisor.states()["x"].incarnation == 5
    assert supervisor.states()["x"].reason == "killed by SIGKILL after 3 s without a sign of life"


async def test_a_stopped_child_that_is_to_stop_is_killed_after_the_grace(bench: Bench) -> None:
    first = await bench.supervisor.start(pulsing(BEATING).model_copy(update={"stop_grace_s": 0.2}))
    assert first.pid is not None
    os.kill(first.pid, signal.SIGSTOP)
    await asyncio.wait_for(bench.supervisor.stop("x"), 5)
    assert (bench.state().status, bench.state().incarnation) == ("stopped", 1)
    assert not alive(first.pid)
