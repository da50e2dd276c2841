"""The job lane at the edge: what becomes a flow run, and what its sender is told."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from api.jobs import is_job
from infra.blobs import Blobs
from infra.errors import InvalidRequest
from infra.prefect_address import PrefectAddress
from infra.prefect_api import PrefectApi
from tests.api.beside_prefect import CHAT, PATH, Flows, beside_prefect
from tests.api.conftest import StartFront

JOB = {"X-Coderai-Lane": "job"}


@pytest.fixture
async def flows(start_front: StartFront) -> AsyncIterator[Flows]:
    async with beside_prefect(start_front) as both:
        yield both


async def post(flows: Flows, body: Any, path: str = PATH, scope: str = "user", **headers: str) -> tuple[int, Any, Any]:
    all_headers = flows.front.headers(scope) | JOB | headers
    async with flows.front.session.post(flows.front.url + path, json=body, headers=all_headers) as answer:
        return answer.status, await answer.json(), answer.headers


async def test_a_job_is_a_flow_run(flows: Flows) -> None:
    status, body, headers = await post(flows, CHAT | {"model": "gpt-4o"})
    (row,) = flows.prefect.runs.values()
    assert (status, body["id"], body["object"], body["status"]) == (202, row["id"], "run", "queued")
    assert (body["flow"], body["model"], body["lane"], body["key"]) == ("chat", "tiny", "job", None)
    assert headers["Location"] == f"/v1/runs/{row['id']}"
    assert headers["X-Coderai-Run"] == row["id"]
    assert int(headers["Retry-After"]) >= 1
    assert row["deployment_id"] == flows.prefect.deployments["chat"]
    assert row["parameters"] == {"request": CHAT | {"model": "gpt-4o"}}
    assert sorted(row["tags"]) == ["key:user", "lane:job", "model:tiny"]
    status, seen = await flows.front.get(headers["Location"])
    assert (status, seen["status"], seen["lane"]) == (200, "queued", "job")
    assert (await flows.front.get(headers["Location"], "node"))[0] == 404
    assert flows.front.children.started == []


async def test_it_is_counted_as_a_request(flows: Flows) -> None:
    await post(flows, CHAT)
    async with flows.front.session.get(flows.front.url + "/metrics", headers=flows.front.headers("admin")) as answer:
        lines = (await answer.text()).splitlines()
    (counted,) = [line for line in lines if line.startswith("coderai_requests_total{")]
    assert 'status="202"' in counted
    assert 'model="tiny"' in counted
    assert flows.front.services.accounting.active == 0


async def test_the_interactive_lane_by_its_name(flows: Flows) -> None:
    status, body, _ = await post(flows, CHAT, **{"X-Coderai-Lane": "interactive"})
    assert (status, body["choices"][0]["message"]["content"]) == (200, "hello")
    assert flows.prefect.runs == {}


@pytest.mark.parametrize(
    ("body", "headers", "status", "param"),
    [
        (CHAT, {"X-Coderai-Lane": "Job"}, 400, "X-Coderai-Lane"),
        (CHAT, {"X-Coderai-Lane": ""}, 400, "X-Coderai-Lane"),
        (CHAT | {"stream": True}, {}, 400, "stream"),
        (CHAT | {"messages": 1}, {}, 400, "messages"),
        ({"messages": []}, {}, 400, "model"),
        (CHAT | {"model": "nope"}, {}, 404, "model"),
        (CHAT, {"Idempotency-Key": ""}, 400, "Idempotency-Key"),
        (CHAT, {"Idempotency-Key": "x" * 256}, 400, "Idempotency-Key"),
        (CHAT, {"Authorization": "Bearer no"}, 401, None),
    ],
)
async def test_what_is_no_job(flows: Flows, body: Any, headers: dict[str, str], status: int, param: str | None) -> None:
    got, answer, _ = await post(flows, body, **headers)
    assert (got, answer["error"]["param"]) == (status, param)
    assert flows.prefect.runs == {}


def test_both_lanes_are_named() -> None:
    assert is_job("job")
    assert not is_job("interactive")
    with pytest.raises(InvalidRequest, match=r"'interactive'.*'job'.*not 'fast'"):
        is_job("fast")


@pytest.mark.parametrize(
    "extra",
    [
        {"note": "x" * 70_000},
        {"$blob": "sha256:" + "0" * 64},
        {"metadata": {"__prefect_kind": "jinja", "template": "{{ 1 }}"}},
        {"user": "a\0b"},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"$ref": "#/$defs/a"}}}]},
    ],
    ids=["large", "reference", "template", "nul", "schema"],
)
async def test_what_must_not_stand_in_a_parameter_is_a_blob(start_front: StartFront, extra: dict[str, Any]) -> None:
    """A client's words are never Prefect's: no reference to another's request, no template for its server to render,
    no block for its flow engine to look up."""
    far = {"name": "tiny", "service_url": "http://127.0.0.1:9", "capabilities": ["chat"]}  # takes any field
    async with beside_prefect(start_front, models=[far]) as flows:
        status, _, headers = await post(flows, CHAT | extra)
        assert status == 202
        row = flows.prefect.runs[headers["X-Coderai-Run"]]
        ref = row["parameters"]["request"]["$blob"]
        assert orjson.loads(Blobs(flows.front.settings.at("jobs")).get(ref)) == CHAT | extra


@pytest.mark.parametrize("mode", ["failed", "none"])
async def test_requests_that_are_not_for_everybody_s_eyes(start_front: StartFront, mode: str) -> None:
    """Whoever opens the flow-run UI reads parameters."""
    async with beside_prefect(start_front, record={"payloads": mode}) as flows:
        _, _, headers = await post(flows, CHAT)
        row = flows.prefect.runs[headers["X-Coderai-Run"]]
        assert set(row["parameters"]["request"]) == {"$blob"}


async def test_the_same_idempotency_key_is_the_same_run(flows: Flows) -> None:
    same = {"Idempotency-Key": "order-1"}
    first, again = [(await post(flows, CHAT, **same))[1]["id"] for _ in range(2)]
    others = (await post(flows, CHAT, scope="node", **same))[1]["id"]
    assert first == again
    assert others != first
    assert len(flows.prefect.runs) == 2
    status, body, _ = await post(flows, CHAT | {"max_tokens": 3}, **same)
    assert (status, body["error"]["param"]) == (409, "Idempotency-Key")


async def test_without_prefect(flows: Flows) -> None:
    async with PrefectApi(PrefectAddress("x", None, "it is starting")) as api:
        flows.use(api)
        status, body, headers = await post(flows, CHAT)
        assert (status, body["error"]["code"]) == (503, "flows_unavailable")
        assert "it is starting" in body["error"]["message"]
        assert int(headers["Retry-After"]) >= 1
    flows.use(None)
    status, body, headers = await post(flows, CHAT)
    assert (status, body["error"]["code"]) == (503, "flows_unavailable")
    assert "flows.server" in body["error"]["message"]


async def test_a_key_s_limits_hold_for_jobs(start_front: StartFront) -> None:
    async with beside_prefect(start_front, auth={"requests_per_minute": 1}) as flows:
        assert [(await post(flows, CHAT))[0] for _ in range(2)] == [202, 429]
