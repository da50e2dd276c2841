"""The worker process as a whole: what it runs, what it refuses, and how it keeps in step. It is a real one."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from infra.errors import NoRoom, Nowhere
from tests.job_lane import CHAT, JobLane, until
from workers.bounds import POOL_PAUSED

pytestmark = pytest.mark.slow


def test_a_run_is_begun_at_once(quiet_lane: JobLane) -> None:
    """It is nudged: a look for what nobody announced comes every fifteen seconds."""
    lane = quiet_lane
    lane.engine.slow_s = 0.5
    took_s = []
    for _ in range(3):
        begun = time.monotonic()
        run = lane.submit("chat", CHAT)
        lane.wait(run, "RUNNING", "COMPLETED")
        took_s.append(time.monotonic() - begun)
        lane.wait(run)
    assert min(took_s) < 1.0, took_s
    assert max(took_s) < 5.0, took_s


def test_a_cancelled_job_leaves_its_engine(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    lane.engine.slow_s = 60
    left = lane.engine.left
    run = lane.submit("chat", CHAT)
    until(lambda: lane.engine.busy, 10, lambda: lane.log)
    begun = time.monotonic()
    lane.set_state(run, "CANCELLING")
    until(lambda: lane.front.held == 0 and lane.engine.left == left + 1, 5)
    done = lane.wait(run, "CANCELLED", timeout_s=5)
    assert time.monotonic() - begun < 5, (
        "0.3 s on a quiet machine; a look for what nobody announced comes after fifteen"
    )
    assert done["state"]["message"] == "it was cancelled; its engine's slot is free"
    assert "Crashed" not in lane.states(run), "Prefect's engine would say so; automations listen to it"
    until(lambda: lane.front.overs == [None], 5)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.2, 0.4])
def test_no_cancelled_job_has_crashed(quiet_lane: JobLane, after_s: float) -> None:
    """At whatever moment of its beginning."""
    lane = quiet_lane
    lane.engine.slow_s = 60
    run = lane.submit("chat", CHAT)
    lane.wait(run, "PENDING", "RUNNING")
    time.sleep(after_s)
    lane.set_state(run, "CANCELLING")
    lane.wait(run, "CANCELLED")
    assert "Crashed" not in lane.states(run)


def test_a_job_waits_for_a_paused_card_and_says_so(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    why = "no pool can take it: paused in the flow-run UI"
    lane.front.refuse = lambda _ask: NoRoom(why, retry_after_s=10, code=POOL_PAUSED)
    run = lane.submit("chat", CHAT)
    until(lambda: f"step generate: waits: {why}" in lane.lines(run), 10, lambda: lane.log)
    lane.front.refuse = lambda _ask: None
    lane.wait(run, "COMPLETED", timeout_s=5)


def test_a_job_that_has_no_place_fails_at_once_and_says_why(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    why = "no pool can take model 'm': cpu/m: given up after repeated crashes; load it again to give it another chance"
    lane.front.refuse = lambda _ask: Nowhere(why, retry_after_s=10)
    run = lane.submit("chat", CHAT)
    done = lane.wait(run, timeout_s=10)
    lane.front.refuse = lambda _ask: None
    assert (done["state_type"], done["state"]["message"]) == ("FAILED", why)
    lane.retry(run)
    lane.wait(run, "COMPLETED")


def test_a_cancelled_job_is_retried(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    lane.engine.slow_s = 60
    run = lane.submit("chat", CHAT)
    until(lambda: lane.engine.busy, 10)
    lane.set_state(run, "CANCELLING")
    lane.wait(run, "CANCELLED")
    lane.engine.slow_s = 0.2
    begun = time.monotonic()
    lane.retry(run)
    lane.wait(run, "RUNNING", "COMPLETED")
    assert time.monotonic() - begun < 10
    assert lane.wait(run)["state_type"] == "COMPLETED"


def test_a_process_that_starts_before_the_server_waits_for_it(quiet_lane: JobLane) -> None:
    """Both were ended at once, say: it must not end once more for that."""
    lane = quiet_lane
    lane.stop()
    lane.server.stop()
    said = len(lane.log)
    with ThreadPoolExecutor(1) as threads:
        heard = threads.submit(until, lambda: "the flow-run server does not answer yet" in lane.log[said:], 40)
        heard.add_done_callback(lambda _: lane.server.start())
        lane.start()
    heard.result()
    assert "Traceback" not in lane.log[said:]
    assert lane.wait(lane.submit("chat", CHAT))["state_type"] == "COMPLETED"


def test_the_front_ends_its_own_runs(quiet_lane: JobLane) -> None:
    """One that it records as running is cancelled in Prefect's pages: the front is told."""
    lane = quiet_lane
    run = _recorded(lane)
    lane.front.own_runs = {run}
    lane.set_state(run, "CANCELLING", force=True)
    until(lambda: lane.front.cancelled == [run], 5, lambda: lane.log)


def test_a_run_that_nobody_executes_is_cancelled_all_the_same(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    run = _recorded(lane)
    lane.front.own_runs = set()
    lane.set_state(run, "CANCELLING", force=True)
    assert lane.wait(run, "CANCELLED", timeout_s=15)["state"]["message"] == (
        "it was cancelled while no worker executed it"
    )


def test_an_edited_deployment_gains_nothing(quiet_lane: JobLane, tmp_path: Path) -> None:
    """Prefect's API lets an admin change what a deployment runs; here it runs what our code says, or nothing."""
    lane = quiet_lane
    made = tmp_path / "made"
    evil = {
        "entrypoint": "evil.py:flow",
        "path": str(tmp_path),
        "pull_steps": [{"prefect.deployments.steps.run_shell_script": {"script": f"touch {made}"}}],
        "job_variables": {"command": f"touch {made}", "env": {"PYTHONPATH": str(tmp_path)}},
    }
    (tmp_path / "evil.py").write_text(f"open({str(made)!r}, 'w').close()\nflow = None\n")
    status, _ = lane.server.call("PATCH", f"/deployments/{lane.deployment('chat')}", evil)
    assert status == 204
    assert lane.wait(lane.submit("chat", CHAT))["state_type"] == "COMPLETED"
    assert not made.exists()
    lane.stop()
    lane.start()
    mended = lane.server.get("/deployments/name/chat/chat")
    assert (mended["entrypoint"], mended["pull_steps"] or [], mended["job_variables"]) == ("flows.jobs.chat", [], {})
    assert "deployment chat/chat is not as declared" in lane.log


@pytest.mark.parametrize("flow", ["chat", "another"])
def test_a_deployment_of_somebody_else_is_refused(quiet_lane: JobLane, tmp_path: Path, flow: str) -> None:
    lane = quiet_lane
    made = tmp_path / "made"
    body = {
        "name": "mine",
        "flow_id": lane.server.post("/flows/", {"name": flow})["id"],
        "work_pool_name": "head",
        "entrypoint": "evil.py:flow",
        "pull_steps": [{"prefect.deployments.steps.run_shell_script": {"script": f"touch {made}"}}],
        "enforce_parameter_schema": False,
    }
    run = lane.submit(flow, CHAT, deployment=lane.server.post("/deployments/", body)["id"])
    done = lane.wait(run)
    assert (done["state_type"], done["state"]["name"]) == ("FAILED", "Refused")
    assert "runs the deployments of its own prefect.yaml and no others" in done["state"]["message"]
    assert not made.exists()


def test_parameters_that_do_not_fit_are_refused(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    deployment = lane.deployment("chat")
    lane.server.call("PATCH", f"/deployments/{deployment}", {"enforce_parameter_schema": False})
    done = lane.wait(lane.submit("chat", "no request"))
    assert done["state"]["message"].startswith("the parameters do not fit the flow chat")
    lane.server.call("PATCH", f"/deployments/{deployment}", {"enforce_parameter_schema": True})


def test_a_deleted_deployment_is_made_anew(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    before = lane.deployment("chat")
    lane.server.call("DELETE", f"/deployments/{before}")
    until(lambda: lane.server.call("GET", "/deployments/name/chat/chat")[0] == 200, 5, lambda: lane.log)
    assert lane.deployment("chat") != before
    assert lane.wait(lane.submit("chat", CHAT))["state_type"] == "COMPLETED"


def test_a_deleted_head_pool_is_made_anew(quiet_lane: JobLane) -> None:
    """Its deployments had lost their work queue with it: their runs would wait for ever."""
    lane = quiet_lane
    lane.server.call("DELETE", "/work_pools/head")
    until(lambda: lane.server.get("/deployments/name/chat/chat")["work_pool_name"] == "head", 10, lambda: lane.log)
    assert lane.wait(lane.submit("chat", CHAT), timeout_s=30)["state_type"] == "COMPLETED"


def test_each_card_has_a_pool(quiet_lane: JobLane) -> None:
    pool = quiet_lane.pool("cpu")
    assert pool["type"] == "coderai-card"
    assert pool["base_job_template"]["variables"]["properties"]["device"]["default"] == "cpu"
    until(lambda: quiet_lane.pool("cpu")["status"] == "READY", 15)


def test_the_operators_pause_and_limit_stay(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    lane.server.call("PATCH", "/work_pools/cpu", {"is_paused": True, "concurrency_limit": 3, "description": "Mine."})
    lane.stop()
    lane.start()
    pool = lane.pool("cpu")
    assert (pool["is_paused"], pool["concurrency_limit"], pool["description"]) == (True, 3, "Mine.")
    lane.server.call("PATCH", "/work_pools/cpu", {"is_paused": False, "concurrency_limit": None})


def test_a_paused_pools_run_waits_until_it_is_resumed(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    lane.server.call("PATCH", "/work_pools/head", {"is_paused": True})
    run = lane.submit("chat", CHAT)
    time.sleep(1.0)
    assert lane.run(run)["state_type"] == "SCHEDULED"
    lane.server.call("PATCH", "/work_pools/head", {"is_paused": False})
    lane.wait(run, "COMPLETED", timeout_s=10)


def test_a_pool_that_an_operator_made_is_adopted(quiet_lane: JobLane) -> None:
    """Its runs stay on the card that it names."""
    lane = quiet_lane
    _make_pool(lane, "night", "cpu")
    until(lambda: lane.pool("night")["status"] == "READY", 15, lambda: lane.log)
    lane.server.call("PATCH", f"/deployments/{lane.deployment('chat')}", {"work_pool_name": "night"})
    run = lane.submit("chat", CHAT)
    assert lane.wait(run)["work_pool_name"] == "night"
    assert lane.front.leases[0].demand.pin == "cpu"
    lane.server.call("PATCH", f"/deployments/{lane.deployment('chat')}", {"work_pool_name": "head"})
    lane.server.call("DELETE", "/work_pools/night")


def test_a_pool_for_no_card_says_why(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    _make_pool(lane, "dream", "cuda-9")
    until(lambda: "Not served" in (lane.pool("dream")["description"] or ""), 15, lambda: lane.log)
    words = lane.pool("dream")["description"]
    assert "it names the device cuda-9, which this machine does not have; there are: cpu" in words
    assert lane.pool("dream")["status"] != "READY"
    template = _template("cpu")
    lane.server.call("PATCH", "/work_pools/dream", {"base_job_template": template})
    until(lambda: lane.pool("dream")["status"] == "READY", 15, lambda: lane.log)
    assert lane.pool("dream")["description"] == ""
    lane.server.call("DELETE", "/work_pools/dream")


def test_a_card_that_is_gone_is_marked(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    lane.front.cards = ["cpu", "cuda-1"]
    lane.stop()
    lane.start()
    until(lambda: lane.pool("cuda-1")["status"] == "READY", 15)
    lane.front.cards = ["cpu"]
    lane.stop()
    lane.start()
    assert "the card cuda-1 is not in this machine now" in lane.pool("cuda-1")["description"]
    lane.server.call("DELETE", "/work_pools/cuda-1")


def test_a_prefect_that_restarts_is_found_again(quiet_lane: JobLane) -> None:
    """The job that ran meanwhile says how it went, as soon as somebody hears it."""
    lane = quiet_lane
    lane.engine.slow_s = 1.0
    run = lane.submit("chat", CHAT)
    until(lambda: lane.engine.busy, 10)
    lane.server.restart()
    assert lane.wait(run, timeout_s=40)["state_type"] == "COMPLETED"
    until(lambda: lane.log.rstrip().endswith("0 deployments written"), 30, lambda: lane.log)
    assert lane.wait(lane.submit("chat", CHAT))["state_type"] == "COMPLETED"


def _template(device: str) -> dict[str, Any]:
    return {
        "job_configuration": {"device": "{{ device }}"},
        "variables": {"type": "object", "properties": {"device": {"type": "string", "default": device}}},
    }


def _make_pool(lane: JobLane, name: str, device: str) -> None:
    lane.server.post("/work_pools/", {"name": name, "type": "coderai-card", "base_job_template": _template(device)})


def _recorded(lane: JobLane) -> str:
    """A run as the recorder shows one that a front executes: running, in a pool, of a worker that is none of ours."""
    lane.front.refuse = lambda _ask: None
    made = lane.server.post(
        f"/deployments/{lane.deployment('chat')}/create_flow_run",
        {"parameters": {"request": CHAT}, "state": {"type": "RUNNING"}},
    )
    lane.server.call("PATCH", f"/flow_runs/{made['id']}", {"infrastructure_pid": "front:1"})
    return str(made["id"])
