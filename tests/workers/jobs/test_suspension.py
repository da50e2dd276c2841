"""Runs that are suspended; what Prefect's engine then does is seen with a worker (`tests/flows/test_jobs.py`)."""

from uuid import uuid4

import pytest
from prefect import flow_engine
from prefect._flow_run_suspension import FlowRunSuspensionRequest, register_flow_run_suspension_request
from prefect.client.schemas.objects import FlowRun, State, StateType

from workers.jobs.suspension import hear_of_suspensions_ourselves, suspend


def run(kind: StateType | None, name: str = "Suspended") -> FlowRun:
    return FlowRun(flow_id=uuid4(), state=State(type=kind, name=name) if kind else None)


def test_a_run_that_is_executed_here_is_told() -> None:
    suspended, request = run(StateType.PAUSED), FlowRunSuspensionRequest()
    assert not suspend(suspended), "nobody executes it"
    with register_flow_run_suspension_request(suspended.id, request):
        assert suspend(suspended)
    assert request.get_state() == suspended.state


@pytest.mark.parametrize("other", [run(StateType.PAUSED, "Paused"), run(StateType.RUNNING, "Running"), run(None)])
def test_one_that_is_not_suspended_is_not(other: FlowRun) -> None:
    request = FlowRunSuspensionRequest()
    with register_flow_run_suspension_request(other.id, request):
        assert not suspend(other)
    assert not request.is_requested()


def test_the_engine_has_no_listener_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "observe_flow_run_suspension"
    monkeypatch.setattr(flow_engine, name, getattr(flow_engine, name))
    hear_of_suspensions_ourselves()
    with getattr(flow_engine, name)(uuid4(), FlowRunSuspensionRequest()) as listener:
        assert listener is None
