"""`/v1/pools`: what an operator sees of the work pools, and changes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.beside_prefect import CHAT, PATH, Flows, beside_prefect
from tests.api.conftest import StartFront


@pytest.fixture
async def flows(start_front: StartFront) -> AsyncIterator[Flows]:
    async with beside_prefect(start_front) as both:
        both.prefect.add_pool("head", type="coderai-head")
        both.prefect.add_pool("cpu", "cpu", concurrency_limit=2)
        yield both


async def patch(flows: Flows, pool: str, body: Any, scope: str = "admin") -> tuple[int, Any]:
    address = f"{flows.front.url}/v1/pools/{pool}"
    async with flows.front.session.patch(address, json=body, headers=flows.front.headers(scope)) as answer:
        return answer.status, await answer.json()


async def test_every_pool_and_why_it_cannot_be_used(flows: Flows) -> None:
    flows.prefect.add_pool("mine", "cpu")
    flows.prefect.add_pool("lost", "cuda-9")
    flows.prefect.add_pool("other", type="docker")
    status, body = await flows.front.get("/v1/pools", "admin")
    assert (status, body["object"]) == (200, "list")
    pools = {pool["name"]: pool for pool in body["data"]}
    assert list(pools) == ["cpu", "head", "lost", "mine", "other"]
    assert (pools["cpu"]["concurrency_limit"], pools["cpu"]["paused"], pools["cpu"]["running"]) == (2, False, 0)
    assert [pools[name]["unusable"] for name in ("cpu", "head", "mine")] == [None] * 3
    assert "cuda-9" in pools["lost"]["unusable"]
    assert "docker" in pools["other"]["unusable"]


async def test_what_runs_there(flows: Flows) -> None:
    await flows.front.post(PATH, CHAT)
    flows.front.services.fleet.engines()[0].in_flight = 2
    _, body = await flows.front.get("/v1/pools", "admin")
    assert [(pool["name"], pool["running"]) for pool in body["data"]] == [("cpu", 2), ("head", 2)]
    flows.front.services.fleet.engines()[0].in_flight = 0


@pytest.mark.parametrize(
    ("wish", "paused", "limit"),
    [
        ({"paused": True}, True, 2),
        ({"concurrency_limit": 5}, False, 5),
        ({"concurrency_limit": None}, False, None),
        ({"paused": True, "concurrency_limit": 0}, True, 0),
    ],
)
async def test_only_what_is_named_is_changed(flows: Flows, wish: Any, paused: bool, limit: int | None) -> None:
    status, body = await patch(flows, "cpu", wish)
    assert (status, body["name"], body["paused"], body["concurrency_limit"]) == (200, "cpu", paused, limit)
    pool = flows.prefect.pools["cpu"]
    assert (pool["is_paused"], pool["concurrency_limit"]) == (paused, limit)


@pytest.mark.parametrize(
    ("pool", "wish", "status", "param"),
    [
        ("cpu", {}, 400, "paused"),
        ("cpu", {"concurrency_limit": -1}, 400, "concurrency_limit"),
        ("cpu", {"concurrency_limit": 2**31}, 400, "concurrency_limit"),
        ("cpu", {"concurrency_limit": 10**30}, 400, "concurrency_limit"),
        ("cpu", {"status": "READY"}, 400, "status"),
        ("none", {"paused": True}, 404, "pool"),
    ],
)
async def test_what_cannot_be_changed(flows: Flows, pool: str, wish: Any, status: int, param: str) -> None:
    got, body = await patch(flows, pool, wish)
    assert (got, body["error"]["param"]) == (status, param)


async def test_pools_are_an_admin_s(flows: Flows) -> None:
    for scope in ("user", "node"):
        assert (await flows.front.get("/v1/pools", scope))[0] == 403
        assert (await patch(flows, "cpu", {"paused": True}, scope))[0] == 403
    assert not flows.prefect.pools["cpu"]["is_paused"]


async def test_without_a_flow_run_server(flows: Flows) -> None:
    flows.use(None)
    status, body = await flows.front.get("/v1/pools", "admin")
    assert (status, body["error"]["code"]) == (503, "flows_unavailable")
