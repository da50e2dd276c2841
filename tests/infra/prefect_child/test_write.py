"""Tests of the writer against a real server: what is written, as Prefect's own API reads it."""

import json
import time

import pytest

from infra.records import Boot
from tests.infra.prefect_child.recording import Recording
from tests.infra.prefect_child.records import attempt, one_step
from tests.prefect_server import PrefectServer

pytestmark = pytest.mark.slow


class TestOnSqlite(Recording):
    """The suite on the session's server, which keeps its runs in SQLite."""


def test_a_queue_that_was_deleted_does_not_cost_the_run(prefect_server: PrefectServer) -> None:
    prefect_server.register(pools={"gone": "coderai-card"}, flows=())
    time.sleep(1.1)  # it looks for a pool that it does not know once a second
    first, second = one_step(), one_step()
    for run in (first, second):
        run.steps[0].attempts = [attempt(run.started_at, run.started_at + 1, pool="gone")]
    prefect_server.record(first)
    assert prefect_server.get(f"/flow_runs/{first.id}")["work_pool_name"] == "gone"
    assert prefect_server.call("DELETE", "/work_pools/gone")[0] == 204
    prefect_server.record(second)
    assert prefect_server.get(f"/flow_runs/{second.id}")["work_pool_name"] == "head"


def test_a_flow_without_a_deployment_is_waited_for(prefect_server: PrefectServer) -> None:
    run = one_step(flow="not-there-yet")
    status, answer = prefect_server.call("POST", "/coderai/record", {"lines": [json.loads(run.line())]})
    assert status == 503
    assert "not-there-yet" in answer["detail"]
    prefect_server.register(flows=("not-there-yet",))
    time.sleep(1.1)
    prefect_server.record(run)
    assert prefect_server.get(f"/flow_runs/{run.id}")["deployment_id"] is not None


def test_a_time_outside_the_calendar_is_refused(prefect_server: PrefectServer) -> None:
    run = one_step(at=1e18)
    status, _ = prefect_server.call("POST", "/coderai/record", {"lines": [json.loads(run.line())]})
    assert status == 422


def test_what_was_spooled_is_drained(prefect_server: PrefectServer) -> None:
    run = one_step()
    spool = prefect_server.home / "spool"
    spool.mkdir(exist_ok=True)
    draft = spool / f"{time.time_ns()}.open"
    draft.write_bytes(Boot("drained", run.started_at - 1).line() + run.line())
    draft.rename(draft.with_suffix(".seg"))
    deadline = time.monotonic() + 20
    while prefect_server.call("GET", f"/flow_runs/{run.id}")[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert prefect_server.get(f"/flow_runs/{run.id}")["state"]["type"] == "COMPLETED"
