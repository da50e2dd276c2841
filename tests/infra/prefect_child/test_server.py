"""Tests of the child as a process: its life, its locks, its route."""

import signal
import time

import pytest

from infra.prefect_child.route import MAX_BODY_BYTES, MAX_LINES
from tests.infra.prefect_child.records import fan_out, one_step
from tests.prefect_server import PrefectServer

pytestmark = pytest.mark.slow


def test_nothing_but_health_is_answered_without_the_password(prefect_server: PrefectServer) -> None:
    assert prefect_server.call("GET", "/health", authorized=False)[0] == 200
    assert prefect_server.call("POST", "/flow_runs/count", {}, authorized=False)[0] == 401
    assert prefect_server.call("POST", "/coderai/record", {"lines": []}, authorized=False)[0] == 401


def test_an_empty_batch_records_nothing(prefect_server: PrefectServer) -> None:
    assert prefect_server.post("/coderai/record", {"lines": []}) == {"recorded": 0}


@pytest.mark.parametrize(
    ("body", "word"),
    [({}, "lines"), ({"lines": [{}]}, "not a record"), ({"lines": [{}] * (MAX_LINES + 1)}, "no lines")],
)
def test_what_is_no_record_is_refused(prefect_server: PrefectServer, body: object, word: str) -> None:
    status, answer = prefect_server.call("POST", "/coderai/record", body)
    assert status == 422
    assert word in answer["detail"]


def test_a_body_over_the_limit_is_refused(prefect_server: PrefectServer) -> None:
    status, _ = prefect_server.call("POST", "/coderai/record", {"lines": [{"x": "x" * MAX_BODY_BYTES}]})
    assert status == 413


def test_it_ends_soon_after_sigterm_and_knows_its_runs_again(prefect_server: PrefectServer) -> None:
    run = one_step()
    prefect_server.record(run)
    began = time.monotonic()
    code = prefect_server.stop()
    took_s = time.monotonic() - began
    prefect_server.start()
    assert code == 0
    assert took_s < 7, "1.5 s on a quiet machine; its supervisor waits for eight"
    assert prefect_server.get(f"/flow_runs/{run.id}")["state"]["type"] == "COMPLETED"


def test_a_sigkill_loses_no_recorded_run(prefect_server: PrefectServer) -> None:
    run = fan_out()
    prefect_server.record(run)
    prefect_server.stop(signal.SIGKILL)
    prefect_server.start()
    assert prefect_server.get(f"/flow_runs/{run.id}")["state"]["type"] == "COMPLETED"


def test_the_contract_is_kept_and_leaves_nothing_behind(prefect_server: PrefectServer) -> None:
    assert prefect_server.status is not None
    assert prefect_server.status.state in ("recording", "waiting")
    flows = prefect_server.post("/flows/filter", {})
    assert "coderai-contract" not in [flow["name"] for flow in flows]


def test_nobody_else_can_read_what_it_keeps(prefect_server: PrefectServer) -> None:
    state = prefect_server.home / "prefect"
    assert state.stat().st_mode & 0o77 == 0
    kept = list(state.glob("flows.db-*"))
    assert kept
    assert all(path.stat().st_mode & 0o77 == 0 for path in kept)
