"""What must hold of recorded runs, whatever database the server keeps them in; a class for each runs the suite."""

import time
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from infra.prefect_child.rows import CRASH_MESSAGE
from infra.records import Boot, Payload, RunRecord
from infra.run_usage import RunUsage, labelled_usage
from tests.infra.prefect_child.records import attempt, fan_out, logs_of, one_step, states_of
from tests.prefect_server import PrefectServer

HOSTILE = "x\0 | `y` <script>alert(1)</script> [a](javascript:b) \N{COLLISION SYMBOL}"


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _retry(server: PrefectServer, run: RunRecord) -> None:
    state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}
    server.post(f"/flow_runs/{run.id}/set_state", {"state": state, "force": True})


class Recording:
    """The suite; `server` is the one whose database it is about."""

    @pytest.fixture
    def server(self, prefect_server: PrefectServer) -> PrefectServer:
        """The session's server, unless a class says otherwise."""
        return prefect_server

    def test_a_run_has_its_times_its_state_and_its_deployment(self, server: PrefectServer) -> None:
        run = one_step()
        server.record(run)
        row = server.get(f"/flow_runs/{run.id}")
        assert _seconds(row["start_time"]) == run.started_at
        assert _seconds(row["end_time"]) == run.ended_at
        assert row["total_run_time"] == 1.5
        assert row["state"]["type"] == "COMPLETED"
        assert states_of(server, run) == ["RUNNING", "COMPLETED"]
        assert row["deployment_id"] == str(server.register()["chat"])
        assert (row["work_pool_name"], row["work_queue_name"]) == ("cpu", "default")
        assert row["name"] == f"chat-{run.id[:8]}"
        assert row["infrastructure_pid"] == "front:boot-1"
        assert row["parameters"] == {"request": {"model": "m", "messages": []}}
        assert set(row["tags"]) == {"model:m", "key:k", "engine:cpu/m", "lane:interactive"}

    def test_a_pool_that_is_none_of_ours_leaves_the_run_to_the_head(self, server: PrefectServer) -> None:
        run = one_step()
        run.steps[0].attempts = [attempt(run.started_at, run.started_at + 1, pool="service:far")]
        server.record(run)
        assert server.get(f"/flow_runs/{run.id}")["work_pool_name"] == "head"

    def test_a_run_of_one_step_has_no_task_run(self, server: PrefectServer) -> None:
        run = one_step()
        server.record(run)
        assert server.post("/task_runs/count", {"flow_runs": {"id": {"any_": [run.id]}}}) == 0

    def test_a_fan_out_has_its_edges(self, server: PrefectServer) -> None:
        run = fan_out()
        server.record(run)
        graph = server.get(f"/flow_runs/{run.id}/graph-v2")
        names = {node["id"]: node["label"] for _, node in graph["nodes"]}
        edges = {(names[parent["id"]], node["label"]) for _, node in graph["nodes"] for parent in node["parents"]}
        assert edges == {("part-0", "join"), ("part-1", "join")}
        tasks = server.post("/task_runs/filter", {"flow_runs": {"id": {"any_": [run.id]}}})
        assert {task["name"]: task["total_run_time"] for task in tasks} == {"part-0": 1.0, "part-1": 0.5, "join": 0.5}
        assert len(graph["artifacts"]) == 1

    def test_a_line_that_comes_again_changes_nothing(self, server: PrefectServer) -> None:
        run = fan_out()
        server.record(run)
        before = server.get(f"/flow_runs/{run.id}"), logs_of(server, run)
        server.record(run, run)
        assert (server.get(f"/flow_runs/{run.id}"), logs_of(server, run)) == before
        mine = {"flow_runs": {"id": {"any_": [run.id]}}}
        assert server.post("/task_runs/count", mine) == 3
        assert len(server.post("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run.id]}}})) == 1

    @pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
    def test_a_lasting_run_is_running_meanwhile(self, server: PrefectServer, end: Any) -> None:
        begun = one_step("running")
        server.record(begun)
        row = server.get(f"/flow_runs/{begun.id}")
        assert (row["state"]["type"], row["end_time"]) == ("RUNNING", None)
        server.record(begun)
        ended = one_step(end, at=begun.started_at, id=begun.id, error=None if end == "completed" else "it broke")
        ended.payload = Payload(request={"later": True})
        server.record(ended)
        row = server.get(f"/flow_runs/{begun.id}")
        assert row["state"]["type"] == end.upper()
        assert row["state"]["message"] == ended.error
        assert states_of(server, begun) == ["RUNNING", end.upper()]
        assert row["total_run_time"] == 1.5
        assert row["parameters"] == {"request": {"later": True}}

    def test_what_a_run_has_used_comes_with_its_end(self, server: PrefectServer) -> None:
        begun = one_step("running")
        server.record(begun)
        assert labelled_usage(server.get(f"/flow_runs/{begun.id}")["labels"]) is None
        ended = one_step(at=begun.started_at, id=begun.id, prompt_tokens=12, completion_tokens=3, cached_tokens=4)
        ended.units = 2.5
        server.record(ended)
        (found,) = server.post("/flow_runs/filter", {"flow_runs": {"id": {"any_": [begun.id]}}})
        assert labelled_usage(found["labels"]) == RunUsage(12, 3, 4, 2.5)

    def test_what_is_over_never_runs_again(self, server: PrefectServer) -> None:
        ended = one_step()
        server.record(ended)
        server.record(one_step("running", at=ended.started_at, id=ended.id))
        assert server.get(f"/flow_runs/{ended.id}")["state"]["type"] == "COMPLETED"

    def test_both_lines_of_a_run_may_come_in_one_batch(self, server: PrefectServer) -> None:
        begun = one_step("running")
        server.record(begun, one_step(at=begun.started_at, id=begun.id), one_step())
        assert states_of(server, begun) == ["RUNNING", "COMPLETED"]

    def test_a_run_that_is_being_cancelled_ends_cancelled(self, server: PrefectServer) -> None:
        begun = one_step("running")
        server.record(begun)
        server.post(f"/flow_runs/{begun.id}/set_state", {"state": {"type": "CANCELLING"}})
        server.record(one_step("cancelled", at=begun.started_at, id=begun.id, error="an operator cancelled it"))
        row = server.get(f"/flow_runs/{begun.id}")
        assert (row["state"]["type"], row["state"]["message"]) == ("CANCELLED", "an operator cancelled it")

    def test_a_retry_is_not_undone_by_the_old_line(self, server: PrefectServer) -> None:
        run = one_step("failed", error="it broke")
        server.record(run)
        _retry(server, run)
        server.record(run)
        assert server.get(f"/flow_runs/{run.id}")["state"]["name"] == "AwaitingRetry"
        server.post(f"/flow_runs/{run.id}/set_state", {"state": {"type": "RUNNING"}, "force": True})
        server.record(run, Boot("boot-2", time.time()))
        row = server.get(f"/flow_runs/{run.id}")
        assert (row["state"]["type"], row["run_count"]) == ("RUNNING", 2)

    def test_runs_of_a_front_that_ended_are_crashed(self, server: PrefectServer) -> None:
        left, leaving, over = one_step("running"), one_step("running"), one_step()
        server.record(left, leaving, over)
        server.post(f"/flow_runs/{leaving.id}/set_state", {"state": {"type": "CANCELLING"}})
        began = left.started_at + 5
        mine = one_step("running", at=began + 1, boot="boot-2")
        server.record(mine, Boot("boot-2", began))
        server.record(Boot("boot-2", began))
        for run in (left, leaving):
            row = server.get(f"/flow_runs/{run.id}")
            assert (row["state"]["type"], row["state"]["message"]) == ("CRASHED", CRASH_MESSAGE)
            assert (_seconds(row["end_time"]), row["total_run_time"]) == (began, 5.0)
        assert server.get(f"/flow_runs/{over.id}")["state"]["type"] == "COMPLETED"
        assert server.get(f"/flow_runs/{mine.id}")["state"]["type"] == "RUNNING"
        server.record(Boot("boot-1", began - 60))
        assert server.get(f"/flow_runs/{mine.id}")["state"]["type"] == "RUNNING"

    def test_whatever_names_and_errors_hold_is_stored(self, server: PrefectServer) -> None:
        run = one_step("failed", error=HOSTILE, model=HOSTILE)
        run.steps[0].attempts[0].error = HOSTILE
        run.payload = Payload(request={"model": HOSTILE, "\0": [HOSTILE, {"deep": None}]})
        server.record(run)
        row = server.get(f"/flow_runs/{run.id}")
        assert row["state"]["message"] == HOSTILE.replace("\0", "�")
        artifact = server.post("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run.id]}}})[0]
        assert "\\<script\\>" in artifact["data"]

    def test_a_failed_run_sends_its_event_once(self, server: PrefectServer) -> None:
        run = one_step("failed", error="it broke")
        server.record(run)
        server.record(run)
        event = _only(_events(server, run))
        server.record(run)
        assert event["event"] == "prefect.flow-run.Failed"
        assert event["resource"]["prefect.state-type"] == "FAILED"
        roles = {one["prefect.resource.role"] for one in event["related"]}
        assert roles == {"flow", "deployment", "work-queue", "work-pool", "tag"}
        UUID(event["id"])

    def test_an_automation_on_failures_fires(self, server: PrefectServer) -> None:
        automation = server.post("/automations/", _pause_on_failure(str(server.register()["rerank"])))
        run = one_step("failed", error="it broke", flow="rerank")
        server.record(run)
        deadline = time.monotonic() + 20
        while not server.get(f"/deployments/{server.register()['rerank']}")["paused"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert server.call("DELETE", f"/automations/{automation['id']}")[0] == 204


def _pause_on_failure(deployment: str) -> dict[str, Any]:
    return {
        "name": "stop on failure",
        "trigger": {
            "type": "event",
            "posture": "Reactive",
            "expect": ["prefect.flow-run.Failed"],
            "match_related": {"prefect.resource.id": f"prefect.deployment.{deployment}"},
            "threshold": 1,
            "within": 0,
        },
        "actions": [{"type": "pause-deployment", "source": "selected", "deployment_id": deployment}],
    }


def _events(server: PrefectServer, run: RunRecord) -> list[dict[str, Any]]:
    wanted = {"filter": {"resource": {"id": [f"prefect.flow-run.{run.id}"]}, "order": "ASC"}, "limit": 50}
    deadline = time.monotonic() + 15
    while not (found := server.post("/events/filter", wanted)["events"]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    events: list[dict[str, Any]] = found
    return events


def _only(events: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(events) == 1
    return events[0]
