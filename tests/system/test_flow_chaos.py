"""The processes behind the front are killed under load: no run is lost, none is there twice, answers notice nothing."""

import json
import os
import signal
import time
from threading import Thread

import httpx2
import pytest

from tests.system.conftest import MakeProduct
from tests.system.flow_api import FlowApi
from tests.system.load import asking
from tests.system.product import CHAT, EMBED, Product, eventually

VECTOR: dict[str, object] = {"model": EMBED, "input": "a cat"}
LONG: dict[str, object] = {
    "model": CHAT,
    "messages": [{"role": "user", "content": "Tell a long story."}],
    "max_tokens": 3000,
    "ignore_eos": True,
}
BACK_WITHIN_S = 60.0
HUNG_WITHIN_S = 120.0
"""A minute without a sign of life, and what a busy machine adds to it."""
PAGE = 200


@pytest.fixture(scope="module")
def served(make_product: MakeProduct) -> Product:
    product = make_product(settings={"FLOWS__SERVER": "child"})
    product.start()
    for model in (EMBED, CHAT):
        product.load(model)
    FlowApi(product).wait_until_up()
    return product


@pytest.fixture
def flows(served: Product) -> FlowApi:
    api = FlowApi(served)
    api.wait_until_up()
    return api


def shown(flows: FlowApi) -> list[str]:
    """The ids of all recorded embeddings."""
    runs: list[str] = []
    while True:
        wanted = {"flows": {"name": {"any_": ["embeddings"]}}, "limit": PAGE, "offset": len(runs), "sort": "ID_DESC"}
        page = flows.post("/flow_runs/filter", wanted).json()
        runs += [run["id"] for run in page]
        if len(page) < PAGE:
            return runs


def test_chaos_the_flow_run_server_is_killed_under_load(served: Product, flows: FlowApi) -> None:
    with asking(served, "/v1/embeddings", VECTOR, threads=4) as load:
        eventually(lambda: len(load.answers) > 100, 30, what=lambda: str(load.answers[-1:]))
        os.kill(served.pid_of("infra.prefect_child"), signal.SIGKILL)
        time.sleep(3)
    assert not load.failed(), load.failed()[:3]
    acknowledged = {answer.run for answer in load.answers}
    flows.wait_until_up()
    eventually(
        lambda: acknowledged <= set(shown(flows)), BACK_WITHIN_S, what=lambda: f"{served.log[-3000:]}", pause_s=1
    )
    found = shown(flows)
    assert len(found) == len(set(found))


def test_chaos_the_worker_is_killed_and_its_job_is_shown_as_crashed(served: Product, flows: FlowApi) -> None:
    headers = served.headers() | {"X-Coderai-Lane": "job"}
    run = httpx2.post(f"{served.url}/v1/chat/completions", json=LONG, headers=headers, timeout=20).json()["id"]
    eventually(lambda: served.engines()[CHAT]["in_flight"], 30, what=lambda: str(flows.run(run)))
    os.kill(served.pid_of("api.worker"), signal.SIGKILL)
    eventually(lambda: not served.engines()[CHAT]["in_flight"], 5, what=lambda: "the lease outlives its holder")
    assert "worker" in flows.run(run, state="CRASHED", within_s=BACK_WITHIN_S)["state"]["message"]
    short = {**LONG, "max_tokens": 4, "ignore_eos": False}
    again = httpx2.post(f"{served.url}/v1/chat/completions", json=short, headers=headers, timeout=20).json()["id"]
    flows.run(again, state="COMPLETED", within_s=BACK_WITHIN_S)


@pytest.mark.timeout(300)
def test_chaos_processes_that_hang_are_ended_and_come_back(served: Product, flows: FlowApi) -> None:
    engine = served.engine_pid(EMBED)
    hung = {name: served.pid_of(name) for name in ("api.front", "infra.prefect_child", "api.worker")}
    for pid in hung.values():
        os.kill(pid, signal.SIGSTOP)
    eventually(
        lambda: not hung.values() & served.processes().keys(), HUNG_WITHIN_S, what=lambda: served.log[-3000:], pause_s=1
    )
    eventually(served.healthy, BACK_WITHIN_S, what=lambda: served.log[-3000:])
    assert served.post("/v1/embeddings", VECTOR).status_code == 200
    assert served.engine_pid(EMBED) == engine
    flows.wait_until_up()
    headers = served.headers() | {"X-Coderai-Lane": "job"}
    run = httpx2.post(f"{served.url}/v1/embeddings", json=VECTOR, headers=headers, timeout=20).json()["id"]
    flows.run(run, state="COMPLETED", within_s=BACK_WITHIN_S)
    checks = {check["name"]: check for check in json.loads(served.run("doctor", "--json").stdout)}
    assert checks["processes"]["status"] == "ok", checks["processes"]
    ended = "killed by SIGKILL after 60 s without a sign of life"
    told = [line.partition(":")[0] for line in served.log.splitlines() if "starts again" in line and ended in line]
    assert sorted(told) == ["front", "prefect", "worker"]
    assert " was started again: " in checks["processes"]["found"]


def test_chaos_a_run_that_the_front_took_with_it_is_shown_as_crashed(served: Product, flows: FlowApi) -> None:
    def ask() -> None:
        with pytest.raises(httpx2.HTTPError):
            served.post("/v1/chat/completions", LONG)

    client = Thread(target=ask)
    client.start()
    running = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
    (run,) = eventually(lambda: flows.post("/flow_runs/filter", running).json(), 30, what=lambda: served.log[-3000:])
    os.kill(served.front_pid(), signal.SIGKILL)
    client.join()
    eventually(served.healthy, 20, what=lambda: served.log[-3000:])
    crashed = flows.run(run["id"], state="CRASHED", within_s=BACK_WITHIN_S)
    assert crashed["end_time"] is not None
    flows.cancel(flows_retry(flows, run["id"]))


def flows_retry(flows: FlowApi, run: str) -> str:
    """Its request was kept from when it was shown as running: it can be run again."""
    flows.retry(run)
    flows.run(run, state="RUNNING", within_s=BACK_WITHIN_S)
    return run
