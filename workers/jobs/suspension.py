"""Suspending a job: heard of by the one subscription of this process, and told to Prefect's engine.

Of itself the engine has, for each run that it executes, a thread with an event loop and a WebSocket to hear of it. It
stands still until they are up, and with it all jobs of this process: for ever, if the server hangs. When the server
goes away each of them leaves a traceback in the log.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import flow_engine
from prefect._flow_run_suspension import is_suspended_flow_run_state, mark_flow_run_suspension_requested
from prefect.client.schemas.objects import FlowRun


def hear_of_suspensions_ourselves() -> None:
    """From now on no run of this process listens by itself (3.9.1, pinned)."""
    flow_engine.observe_flow_run_suspension = _listen_to_nothing  # type: ignore[assignment, attr-defined]


def suspend(run: FlowRun) -> bool:
    """Have a run that this process executes end before its next step, if it is Suspended; whether it is such a one."""
    if run.state is None or not is_suspended_flow_run_state(run.state):
        return False
    return mark_flow_run_suspension_requested(run.id, run.state)


@contextmanager
def _listen_to_nothing(*_: Any) -> Iterator[None]:
    yield
