from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType

from workers.jobs.leftovers import end_of, worker_name

RUN = UUID(int=7)
OURS = f"{worker_name('cpu')}:{RUN}"


def run(kind: StateType, pid: str | None) -> FlowRun:
    return FlowRun(id=RUN, flow_id=uuid4(), state=State(type=kind), infrastructure_pid=pid)


@pytest.mark.parametrize(
    ("kind", "pid", "end"),
    [
        (StateType.RUNNING, OURS, StateType.CRASHED),
        (StateType.PENDING, OURS, StateType.CRASHED),
        (StateType.CANCELLING, OURS, StateType.CANCELLED),
        (StateType.CANCELLING, None, StateType.CANCELLED),
        # Handed out, not begun: it waits again. A retry still has the pid of the front that ran it before.
        (StateType.PENDING, None, StateType.SCHEDULED),
        (StateType.PENDING, "front:1", StateType.SCHEDULED),
        # A front executes it, or its next life gives it its end.
        (StateType.RUNNING, "front:1", None),
        (StateType.CANCELLING, "front:1", None),
        (StateType.RUNNING, None, None),
        (StateType.COMPLETED, OURS, None),
        (StateType.SCHEDULED, OURS, None),
    ],
)
def test_the_end_of_a_run_that_nobody_executes(kind: StateType, pid: str | None, end: StateType | None) -> None:
    state = end_of(run(kind, pid), live=())
    assert (state.type if state else None) is end
    assert state is None or state.message


def test_one_that_is_handed_out_just_now_is_no_leftover() -> None:
    assert end_of(run(StateType.PENDING, None), live=(), first=False) is None
    assert end_of(run(StateType.RUNNING, OURS), live=(), first=False) is not None


def test_a_live_one_is_let_alone() -> None:
    live: set[UUID] = {RUN}
    assert end_of(run(StateType.RUNNING, OURS), live) is None
