"""Every request is a flow run: recorded, retried, cancelled, held back by its pool; with the real Prefect child."""

import os
import signal
import time
from threading import Thread
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.system.conftest import MakeProduct
from tests.system.far import Far
from tests.system.flow_api import TERMINAL, FlowApi
from tests.system.product import CHAT, EMBED, Product, eventually

PATH = "/v1/chat/completions"
SHORT: dict[str, object] = {"model": CHAT, "messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 4}
LONG: dict[str, object] = {**SHORT, "max_tokens": 3000, "ignore_eos": True}
FAR: dict[str, object] = {"model": "far", "messages": [{"role": "user", "content": "Are you there?"}]}
CANCEL_WITHIN_S = 4.0
"""Two seconds are the goal on a quiet machine; these tests share two cores with whatever else runs."""


@pytest.fixture(scope="module")
def served(make_product: MakeProduct, far: Far) -> Product:
    """An install with the flow-run server, a small chat model in memory and a far service."""
    product = make_product(config=far.model, settings={"FLOWS__SERVER": "child"})
    product.start()
    product.load(CHAT)
    FlowApi(product).wait_until_up()
    return product


@pytest.fixture
def flows(served: Product) -> FlowApi:
    return FlowApi(served)


def ask(served: Product, body: dict[str, object], path: str = PATH, **headers: str) -> httpx2.Response:
    sent = served.headers() | headers
    return httpx2.post(f"{served.url}{path}", json=body, headers=sent, timeout=60)


def idle(served: Product) -> bool:
    return not any(engine["in_flight"] for engine in served.engines().values())


def test_a_chat_is_found_as_a_completed_flow_run(served: Product, flows: FlowApi) -> None:
    began = time.time()
    answer = ask(served, SHORT)
    ended = time.time()
    run = flows.run(answer.headers["x-coderai-run"], state="COMPLETED")
    assert {f"model:{CHAT}", f"engine:cpu/{CHAT}", "key:first"} <= set(run["tags"])
    assert run["work_pool_name"] == "cpu"
    assert 0 < run["total_run_time"] <= ended - began
    assert run["parameters"]["request"]["messages"] == SHORT["messages"]
    assert flows.tasks(run["id"]) == {}
    logs = flows.post("/logs/filter", {"logs": {"flow_run_id": {"any_": [run["id"]]}}}).json()
    assert any("cpu" in line["message"] for line in logs)


def test_a_run_of_two_steps_shows_its_edges(served: Product, flows: FlowApi) -> None:
    body: dict[str, object] = {"model": EMBED, "query": "cat", "documents": ["a dog", "a kitten"]}
    answer = ask(served, body, "/v1/rerank")
    assert answer.status_code == 200, answer.text
    run = flows.run(answer.headers["x-coderai-run"], state="COMPLETED")
    nodes = dict(flows.get(f"/flow_runs/{run['id']}/graph-v2").json()["nodes"])
    named = {node["label"]: node for node in nodes.values()}
    assert set(named) == {"score", "rank"}
    assert [parent["id"] for parent in named["rank"]["parents"]] == [named["score"]["id"]]


def test_a_run_that_lasts_is_shown_and_can_be_cancelled(served: Product, flows: FlowApi) -> None:
    answers: list[httpx2.Response] = []
    client = Thread(target=lambda: answers.append(ask(served, LONG)))
    client.start()
    mine = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}, "tags": {"all_": [f"model:{CHAT}"]}}}
    (run,) = eventually(lambda: flows.post("/flow_runs/filter", mine).json(), 20, what=lambda: served.log[-3000:])
    flows.cancel(run["id"])
    cancelled_s = time.monotonic()
    eventually(lambda: idle(served), CANCEL_WITHIN_S, what=lambda: str(served.engines()))
    client.join(10)
    assert time.monotonic() - cancelled_s < CANCEL_WITHIN_S + 10
    assert answers[0].status_code == 409
    assert answers[0].json()["error"]["code"] == "run_cancelled"
    assert flows.run(run["id"], state="CANCELLED")["end_time"] is not None


def test_a_failed_run_is_retried_and_its_answer_is_fetched(served: Product, flows: FlowApi, far: Far) -> None:
    far.broken = True
    try:
        failed = ask(served, FAR)
        assert failed.status_code == 502, failed.text
        run = flows.run(failed.headers["x-coderai-run"], state="FAILED")
    finally:
        far.broken = False
    flows.retry(run["id"])
    done = flows.run(run["id"], state="COMPLETED", within_s=30)
    assert done["run_count"] == 2
    shown = served.get(f"/v1/runs/{run['id']}")
    assert shown["status"] == "completed"
    assert shown["answer"]["choices"][0]["message"]["content"] == "from afar"


def test_a_request_is_run_as_a_job_on_purpose(served: Product, flows: FlowApi) -> None:
    taken = ask(served, SHORT, **{"X-Coderai-Lane": "job"})
    assert taken.status_code == 202, taken.text
    address = taken.headers["location"]
    shown = eventually(
        lambda: next((one for one in [served.get(address)] if one["status"] not in ("queued", "running")), None),
        30,
        what=lambda: f"{served.get(address)}\n{served.log[-3000:]}",
        pause_s=0.2,
    )
    assert shown is not None
    assert shown["status"] == "completed", shown
    assert shown["answer"]["choices"][0]["message"]["content"]
    raw = httpx2.get(f"{served.url}{shown['answer_url']}", headers=served.headers())
    assert raw.json() == shown["answer"]
    flows.require_tasks(shown["id"], "generate")


def test_a_running_job_is_cancelled_and_frees_its_slot(served: Product, flows: FlowApi) -> None:
    run = ask(served, LONG, **{"X-Coderai-Lane": "job"}).json()["id"]
    eventually(lambda: not idle(served), 30, what=lambda: f"{flows.run(run)}\n{served.log[-3000:]}")
    flows.cancel(run)
    eventually(lambda: idle(served), CANCEL_WITHIN_S, what=lambda: str(served.engines()))
    assert flows.run(run, state="CANCELLED")["state_type"] == "CANCELLED"


def test_a_paused_pool_takes_nothing_and_says_why(served: Product, flows: FlowApi) -> None:
    assert flows.patch("/work_pools/cpu", {"is_paused": True}).status_code == 204
    try:
        refused = eventually(
            lambda: next((one for one in [ask(served, SHORT)] if one.status_code != 200), None),
            8,
            what=lambda: "the pool is paused, and yet requests are answered",
        )
        assert refused is not None
        assert refused.status_code == 503
        assert "paused" in refused.json()["error"]["message"]
    finally:
        flows.patch("/work_pools/cpu", {"is_paused": False})
    eventually(lambda: ask(served, SHORT).status_code == 200, 8, what=lambda: "the pool is not paused any more")


def test_a_pool_s_limit_bounds_what_runs_at_once(served: Product, flows: FlowApi) -> None:
    assert flows.patch("/work_pools/cpu", {"concurrency_limit": 1}).status_code == 204
    most = 0
    try:
        time.sleep(5)
        clients = [Thread(target=ask, args=(served, {**SHORT, "max_tokens": 40})) for _ in range(4)]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            most = max(most, served.engines()[CHAT]["in_flight"])
    finally:
        flows.patch("/work_pools/cpu", {"concurrency_limit": None})
    assert most == 1


def test_what_a_key_ran_is_its_own(served: Product) -> None:
    ann, bob = served.new_key("ann"), served.new_key("bob")
    run = served.post(PATH, SHORT, key=ann).headers["x-coderai-run"]
    address = f"{served.url}/v1/runs/{run}"
    assert httpx2.get(address, headers=served.headers(ann)).json()["id"] == run
    for path in (address, f"{address}/answer"):
        assert httpx2.get(path, headers=served.headers(bob)).status_code == 404
    for what in ("retry", "cancel"):
        assert httpx2.post(f"{address}/{what}", headers=served.headers(bob)).status_code == 404
    assert run not in httpx2.get(f"{served.url}/v1/runs", headers=served.headers(bob)).text
    for path in ("/flows/", "/flows/api/flow_runs/filter", "/flows/api/admin/version"):
        assert httpx2.get(f"{served.url}{path}", headers=served.headers(ann)).status_code == 403


def test_a_response_in_the_background_is_a_flow_run(served: Product, flows: FlowApi) -> None:
    asked: dict[str, Any] = {"model": CHAT, "max_output_tokens": 8, "background": True}
    with served.client() as client:
        first = client.responses.create(input="Say hi.", **asked)
        assert first.status == "queued"
        events = list(client.responses.retrieve(first.id, stream=True))
        assert [event.sequence_number for event in events] == list(range(len(events)))
        done = client.responses.retrieve(first.id)
        assert done.output_text
        assert events[-1] == client.responses.retrieve(first.id, stream=True, starting_after=len(events) - 2).__next__()
        run = flows.run((done.model_extra or {})["run"], state="COMPLETED")
        assert {f"response:{first.id}", f"model:{CHAT}", "key:first"} <= set(run["tags"])
        stream = client.responses.create(input="And again.", previous_response_id=first.id, stream=True, **asked)
        second = list(stream)[-1]
        assert second.type in ("response.completed", "response.incomplete")
        assert second.response.previous_response_id == first.id


def test_a_response_in_the_background_is_cancelled(served: Product, flows: FlowApi) -> None:
    asked: dict[str, Any] = {"model": CHAT, "input": "Count.", "max_output_tokens": 3000, "background": True}
    with served.client() as client:
        for by_its_run in (True, False):
            made = client.responses.create(**asked, extra_body={"ignore_eos": True})
            eventually(lambda: not idle(served), 30, what=lambda: served.log[-3000:])
            if by_its_run:
                flows.cancel((made.model_extra or {})["run"])
            else:
                assert client.responses.cancel(made.id).status == "cancelled"
            eventually(lambda: idle(served), CANCEL_WITHIN_S, what=lambda: str(served.engines()))
            eventually(
                lambda made=made: client.responses.retrieve(made.id).status == "cancelled",  # type: ignore[misc]
                10,
                what=lambda: served.log[-3000:],
            )


def test_a_response_in_the_background_is_retried_in_its_run(served: Product, flows: FlowApi, far: Far) -> None:
    far.open.clear()
    before = len(far.asked)
    try:
        with served.client() as client:
            made = client.responses.create(model="far", input="Are you there?", background=True)
            run = (made.model_extra or {})["run"]
            eventually(lambda: len(far.asked) > before, 30, what=lambda: served.log[-3000:])
            assert client.responses.cancel(made.id).status == "cancelled"
            flows.run(run, state="CANCELLED")
            far.open.set()
            flows.retry(run)
            eventually(lambda: client.responses.retrieve(made.id).output_text, 30, what=lambda: served.log[-3000:])
            done = client.responses.retrieve(made.id)
            assert (done.status, done.output_text) == ("completed", "from afar")
    finally:
        far.open.set()


def test_a_deployment_edited_over_the_api_runs_no_command(served: Product, flows: FlowApi, far: Far) -> None:
    (chat,) = flows.post("/deployments/filter", {"deployments": {"name": {"any_": ["chat"]}}}).json()
    trap = served.home / "trapped"
    evil = {
        "entrypoint": "os:system",
        "pull_steps": [{"prefect.deployments.steps.run_shell_script": {"script": f"touch {trap}"}}],
        "job_variables": {"command": f"touch {trap}", "env": {"PYTHONSTARTUP": str(trap)}},
    }
    changed = flows.patch(f"/deployments/{chat['id']}", evil)
    assert changed.status_code in (204, 422), changed.text
    run = ask(served, FAR, **{"X-Coderai-Lane": "job"}).json()["id"]
    eventually(lambda: flows.run(run)["state_type"] in TERMINAL, 30, what=lambda: str(flows.run(run)))
    assert not trap.exists()


def test_a_response_in_the_background_outlives_its_worker_process(served: Product, flows: FlowApi, far: Far) -> None:
    far.open.clear()
    before = len(far.asked)
    with served.client() as client:
        made = client.responses.create(model="far", input="Are you there?", background=True)
        eventually(lambda: len(far.asked) > before, 30, what=lambda: served.log[-3000:])
        assert client.responses.retrieve(made.id).status == "in_progress"
        os.kill(served.pid_of("api.worker"), signal.SIGKILL)
        far.open.set()
        done = _over(client, made.id, served)
    assert (done.status, done.output_text) == ("completed", "from afar")
    assert flows.run((done.model_extra or {})["run"], state="COMPLETED")["run_count"] == 2


def _over(client: OpenAI, response: str, served: Product) -> Response:
    """The response, once it is over."""
    last: list[Response] = []

    def over() -> bool:
        last[:] = [client.responses.retrieve(response)]
        return last[0].status not in ("queued", "in_progress")

    eventually(over, 90, what=lambda: f"{last}\n{served.log[-3000:]}", pause_s=0.5)
    return last[0]
