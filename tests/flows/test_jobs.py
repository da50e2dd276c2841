"""The flows of the job lane under Prefect's engine, in a real worker process."""

import orjson
import pytest

from flows.jobs import FLOWS
from infra.blobs import Blobs
from infra.requests import blob_parameter, gone
from infra.run_usage import RunUsage, labelled_usage
from infra.types import EngineId, PoolId
from tests.job_lane import CHAT, RERANK, JobLane, until
from workers.sites import Site
from workers.wire import LeaseOver

pytestmark = pytest.mark.slow


def test_every_flow_takes_one_request() -> None:
    for name, flow in FLOWS.items():
        assert flow.name == name
        assert flow.parameters.required == ["request"]
        assert flow.persist_result is False


def test_a_job_completes_with_its_answer_kept(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    run = lane.submit("chat", CHAT | {"stream": True, "stream_options": {"include_usage": True}}, ("key:ann",))
    done = lane.wait(run)
    assert (done["state_type"], lane.states(run)[-1]) == ("COMPLETED", "Completed"), done["state"]
    answer = lane.files.answer(run)
    assert answer is not None
    body, media_type = answer
    assert orjson.loads(body)["choices"][0]["message"]["content"] == "hello"
    assert media_type == "application/json"
    assert not {"stream", "stream_options"} & {*lane.engine.bodies[0], *lane.front.plans[0].request}
    assert (lane.front.plans[0].key, lane.front.leases[0].key, lane.front.leases[0].run) == ("ann", "ann", run)
    until(lambda: lane.front.overs == [LeaseOver(prompt_tokens=5, completion_tokens=2)], 10)


def test_what_a_run_has_used_is_kept_with_it_over_all_its_executions(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    run = lane.submit("chat", CHAT)
    assert labelled_usage(lane.wait(run)["labels"]) == RunUsage(5, 2)
    assert "prefect.flow.id" in lane.run(run)["labels"]
    lane.retry(run)
    until(lambda: lane.run(run)["run_count"] == 2 and lane.run(run)["state_type"] == "COMPLETED", 20)
    assert labelled_usage(lane.run(run)["labels"]) == RunUsage(10, 4)


def test_a_run_that_failed_keeps_what_its_finished_steps_used(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    lane.front.sites = tuple(Site(PoolId(pool), EngineId(f"{pool}/m"), True, 1.0) for pool in ("a", "b"))
    run = lane.submit("rerank", RERANK | {"documents": [f"text {number}" for number in range(16)]})
    whole = labelled_usage(lane.wait(run)["labels"])
    assert whole is not None
    lane.files.keep_step(run, "split", [[0, 8], [8, 8]])
    lane.files.keep_step(run, "part-1", {"scores": [1.0] * 8, "prompt_tokens": 9})
    lane.engine.broken = {"rerank"}
    lane.retry(run)
    until(lambda: lane.run(run)["run_count"] == 2 and lane.run(run)["state_type"] == "FAILED", 20)
    assert labelled_usage(lane.run(run)["labels"]) == whole, "a kept step is not used once more"


def test_its_page_says_where_it_went_and_leads_to_the_answer(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    run = lane.submit("chat", CHAT, ("key:ann",))
    done = lane.wait(run)
    assert {"model:m", "key:ann", "engine:cpu/m", "lane:job"} <= set(done["tags"])
    assert done["infrastructure_pid"] == f"coderai-head:{run}"
    page = lane.about(run, "artifacts")[0]["data"]
    assert "it holds the model" in page
    assert f"(/admin/runs/{run}/answer)" in page
    until(lambda: "step generate: on cpu/m: it holds the model" in lane.lines(run), 5, lambda: lane.lines(run))


def test_each_step_is_a_task_run_with_its_edges(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    run = lane.submit("rerank", RERANK)
    assert lane.wait(run)["state_type"] == "COMPLETED"
    until(lambda: len(lane.about(run, "task_runs")) == 2, 5)
    score, rank = sorted(lane.about(run, "task_runs"), key=lambda each: str(each["start_time"]))
    assert (score["name"], rank["name"]) == ("score", "rank")
    assert rank["task_inputs"]["parents"] == [{"input_type": "task_run", "id": score["id"]}]
    assert score["task_inputs"]["parents"] == []
    assert lane.front.leases[0].key == "operator", "no key was named: it was made in Prefect's own pages"


def test_a_retry_runs_only_what_is_not_done(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    run = lane.submit("rerank", RERANK)
    lane.wait(run)
    lane.files.keep_step(run, "score", {"scores": [2.0, 1.0], "prompt_tokens": 9})
    lane.engine.asked.clear()
    lane.retry(run)
    until(lambda: lane.run(run)["run_count"] == 2 and lane.run(run)["state_type"] == "COMPLETED", 20)
    assert lane.engine.asked == []
    answer = lane.files.answer(run)
    assert answer is not None
    assert [result["index"] for result in orjson.loads(answer[0])["results"]] == [0, 1], "by the kept scores"
    words = "step score: its result is kept from an earlier try; it is not run again"
    until(lambda: words in lane.lines(run), 5, lambda: lane.lines(run))
    assert lane.files.steps(run) == {}, "another execution of a complete run begins anew"


def test_a_retry_runs_only_the_parts_that_are_not_done(quiet_lane: JobLane) -> None:
    """Though the engines' speeds would have it cut otherwise now."""
    lane = quiet_lane
    lane.front.sites = tuple(Site(PoolId(pool), EngineId(f"{pool}/m"), True, 1.0) for pool in ("a", "b"))
    run = lane.submit("rerank", RERANK | {"documents": [f"text {number}" for number in range(16)]})
    lane.wait(run)
    assert sorted(len(body["documents"]) for body in lane.engine.bodies) == [8, 8]
    assert {lease.demand.home for lease in lane.front.leases} == {"a", "b"}
    lane.files.keep_step(run, "split", [[0, 11], [11, 5]])
    lane.files.keep_step(run, "part-1", {"scores": [float(number) for number in range(11)], "prompt_tokens": 9})
    lane.engine.bodies.clear()
    lane.retry(run)
    until(lambda: lane.run(run)["run_count"] == 2 and lane.run(run)["state_type"] == "COMPLETED", 20)
    assert [body["documents"] for body in lane.engine.bodies] == [[f"text {number}" for number in range(11, 16)]]
    answer = lane.files.answer(run)
    assert answer is not None
    assert [result["index"] for result in orjson.loads(answer[0])["results"]][:3] == [10, 9, 8], "by the kept scores"


def test_a_suspended_run_ends_before_its_next_step_and_goes_on_there(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    broken = lane.log.count("broke off")
    lane.wait(lane.submit("chat", CHAT))
    lane.engine.held = True
    run = lane.submit("rerank", RERANK)
    lane.suspend(run)
    lane.engine.held = False
    until(lambda: "score" in lane.files.steps(run), 10, lambda: lane.log)
    until(lambda: lane.front.held == 0, 5)
    assert lane.run(run)["state_type"] == "PAUSED"
    assert lane.files.answer(run) is None
    lane.engine.asked.clear()
    assert lane.server.post(f"/flow_runs/{run}/resume", {})["status"] == "ACCEPT"
    lane.wait(run, "COMPLETED")
    assert lane.engine.asked == [], "the step that was done is not run again"
    assert lane.log.count("broke off") == broken


def test_a_suspended_run_that_is_cancelled_leaves_its_engine(quiet_lane: JobLane) -> None:
    """Prefect makes it Cancelled at once, and asks nobody."""
    lane = quiet_lane
    left = lane.engine.left
    lane.engine.held = True
    run = lane.submit("chat", CHAT)
    lane.suspend(run)
    lane.server.post(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
    until(lambda: lane.front.held == 0 and lane.engine.left == left + 1, 30, lambda: lane.log)
    assert lane.wait(run)["state_type"] == "CANCELLED"


def test_a_failed_run_keeps_what_was_done(quiet_lane: JobLane) -> None:
    lane = quiet_lane
    lane.engine.broken = {"rerank"}
    run = lane.submit("rerank", RERANK)
    done = lane.wait(run)
    assert done["state_type"] == "FAILED"
    assert "cpu/m" in done["state"]["message"]
    assert "Traceback" not in done["state"]["message"]
    assert lane.front.leases[1].tried == (("cpu/m", 1),), "it is tried once more"
    lane.engine.broken = set()
    lane.retry(run)
    assert lane.wait(run, "COMPLETED")["run_count"] == 2


def test_what_the_front_refuses_is_the_runs_end(quiet_lane: JobLane) -> None:
    run = quiet_lane.submit("chat", CHAT | {"model": "nobody"})
    done = quiet_lane.wait(run)
    assert (done["state_type"], done["state"]["message"]) == ("FAILED", "Model 'nobody' is not available")


def test_a_request_may_be_a_blob(quiet_lane: JobLane) -> None:
    ref = Blobs(quiet_lane.home / "jobs").put(orjson.dumps(CHAT))
    run = quiet_lane.submit("chat", blob_parameter(ref))
    assert quiet_lane.wait(run)["state_type"] == "COMPLETED"


def test_one_that_is_not_kept_says_so(quiet_lane: JobLane) -> None:
    run = quiet_lane.submit("chat", gone("payloads are not kept here"))
    done = quiet_lane.wait(run)
    assert done["state_type"] == "FAILED"
    assert done["state"]["message"] == "This run cannot be executed again: payloads are not kept here"
    assert quiet_lane.front.plans == []


def test_nothing_is_pickled(quiet_lane: JobLane) -> None:
    """Neither results nor errors are written by Prefect."""
    quiet_lane.wait(quiet_lane.submit("chat", CHAT | {"model": "nobody"}))
    quiet_lane.wait(quiet_lane.submit("chat", CHAT))
    assert not (quiet_lane.home / "prefect" / "storage").exists()
