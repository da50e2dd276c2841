"""The client of Prefect's REST API, against a server on a real socket."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from infra.errors import Conflict, FlowsUnavailable, NotFound
from infra.prefect_address import PrefectAddress
from infra.prefect_api import PAGE, PrefectApi
from infra.prefect_shapes import RunFilter
from infra.types import PoolId, RunId
from tests.fakes_prefect_api import FakePrefect

pytestmark = pytest.mark.enable_socket


@pytest.fixture
async def prefect() -> AsyncIterator[FakePrefect]:
    async with FakePrefect() as server:
        yield server


@pytest.fixture
async def api(prefect: FakePrefect) -> AsyncIterator[PrefectApi]:
    async with PrefectApi(prefect.address) as client:
        yield client


async def test_a_run(prefect: FakePrefect, api: PrefectApi) -> None:
    row = prefect.add_run("chat", "FAILED", message="no room")
    run = await api.run(row["id"])
    assert run is not None
    assert (run.id, run.tag("key"), run.run_count, run.total_run_time) == (row["id"], "user", 1, 1.5)
    assert run.state is not None
    assert (run.state.type, run.state.message, run.terminal) == ("FAILED", "no room", True)
    assert await api.flow_name(run.flow_id) == "chat"
    assert await api.run(RunId(str(uuid4()))) is None


@pytest.mark.parametrize("word", ["", "filter", "count", "../flows", "a/b", "%2e%2e"])
async def test_what_is_no_id_of_a_run_is_not_asked_for(prefect: FakePrefect, api: PrefectApi, word: str) -> None:
    assert await api.run(RunId(word)) is None
    with pytest.raises(NotFound):
        await api.set_state(RunId(word), "CANCELLING")
    assert prefect.seen == []


async def test_runs_the_latest_first(prefect: FakePrefect, api: PrefectApi) -> None:
    rows = [prefect.add_run(ago_s=ago, key=key) for ago, key in ((30, "a"), (10, "b"), (20, "a"), (5, "a"))]
    ids = [row["id"] for row in rows]
    assert [run.id for run in await api.runs(RunFilter())] == [ids[3], ids[1], ids[2], ids[0]]
    assert [run.id for run in await api.runs(RunFilter(tags=("key:a",)), 2)] == [ids[3], ids[2]]
    assert [run.id for run in await api.runs(RunFilter(tags=("key:a",)), 2, 2)] == [ids[0]]
    third = (await api.runs(RunFilter(ids=(ids[2],))))[0]
    older = await api.runs(RunFilter(before=third.start_time))
    assert [run.id for run in older] == [ids[2], ids[0]]
    assert await api.count(RunFilter(states=("COMPLETED",))) == 4
    assert await api.runs(RunFilter(states=("FAILED",))) == []


async def test_what_belongs_to_a_run(prefect: FakePrefect, api: PrefectApi) -> None:
    row, other = prefect.add_run("rerank"), prefect.add_run("rerank")
    split = prefect.add_task(row, "split")
    prefect.add_task(row, "join", split)
    prefect.add_task(other, "split")
    for owner, words in ((row, "one"), (other, "two")):
        line = {"level": 20, "message": words, "timestamp": row["start_time"], "flow_run_id": owner["id"]}
        prefect.logs.append(line)
        prefect.artifacts.append(
            line | {"id": str(uuid4()), "type": "markdown", "data": words, "created": row["created"]}
        )
    tasks = await api.task_runs(row["id"])
    assert [task.name for task in tasks] == ["split", "join"]
    assert tasks[1].task_inputs["parents"][0].id == tasks[0].id
    assert [line.message for line in await api.logs(row["id"])] == ["one"]
    assert [artifact.data for artifact in await api.artifacts(row["id"])] == ["one"]


async def test_states(prefect: FakePrefect, api: PrefectApi) -> None:
    row = prefect.add_run("chat", "FAILED")
    refused = await api.set_state(row["id"], "CANCELLING", "Cancelling")
    assert not refused.accepted
    assert "already" in refused.reason
    told = await api.set_state(row["id"], "SCHEDULED", "AwaitingRetry", "again", force=True)
    assert told.accepted
    assert told.state is not None
    assert (told.state.type, told.state.name, told.state.message) == ("SCHEDULED", "AwaitingRetry", "again")
    with pytest.raises(NotFound, match="no flow run"):
        await api.set_state(RunId(str(uuid4())), "CANCELLING")


async def test_a_new_run(prefect: FakePrefect, api: PrefectApi) -> None:
    run = await api.create_run("chat/chat", {"request": {"a": 1}}, ["key:a", "lane:job"])
    assert (run.parameters, run.tags) == ({"request": {"a": 1}}, ("key:a", "lane:job"))
    assert run.state is not None
    assert run.state.type == "SCHEDULED"
    other = await api.create_run("chat/chat", {"request": {"a": 1}}, ["key:a", "lane:job"])
    assert other.id != run.id
    assert prefect.seen.count(("GET", "/deployments/name/chat/chat")) == 1


async def test_one_idempotency_key_is_one_run(prefect: FakePrefect, api: PrefectApi) -> None:
    runs = [await api.create_run("chat/chat", {"request": {"a": n}}, [], "k") for n in range(2)]
    assert runs[0].id == runs[1].id
    assert runs[1].parameters == {"request": {"a": 0}}
    assert len(prefect.runs) == 1


async def test_parameters_that_the_deployment_does_not_take(api: PrefectApi) -> None:
    with pytest.raises(Conflict, match="Validation failed"):
        await api.create_run("chat/chat", {"request": 1}, [])


async def test_a_deployment_that_was_made_anew(prefect: FakePrefect, api: PrefectApi) -> None:
    await api.create_run("chat/chat", {"request": {}}, [])
    prefect.deployments["chat"] = str(uuid4())
    run = await api.create_run("chat/chat", {"request": {}}, [])
    assert str(run.deployment_id) == prefect.deployments["chat"]
    del prefect.deployments["chat"]
    with pytest.raises(FlowsUnavailable, match="no deployment chat/chat"):
        await api.create_run("chat/chat", {"request": {}}, [])


async def test_work_pools(prefect: FakePrefect, api: PrefectApi) -> None:
    prefect.add_pool("zed", "cuda-1", concurrency_limit=2, active_slots=1)
    prefect.add_pool("head", type="coderai-head")
    pools = await api.work_pools()
    assert [(pool.name, pool.type, pool.device, pool.concurrency_limit) for pool in pools] == [
        ("head", "coderai-head", None, None),
        ("zed", "coderai-card", "cuda-1", 2),
    ]
    await api.change_pool(PoolId("zed"), {"is_paused": True, "concurrency_limit": None})
    assert (prefect.pools["zed"]["is_paused"], prefect.pools["zed"]["concurrency_limit"]) == (True, None)
    with pytest.raises(NotFound, match="no work pool 'a/b'"):
        await api.change_pool(PoolId("a/b"), {"is_paused": True})


@pytest.mark.parametrize("count", [PAGE - 1, PAGE, PAGE + 1])
async def test_many_work_pools(prefect: FakePrefect, api: PrefectApi, count: int) -> None:
    for number in range(count):
        prefect.add_pool(f"pool-{number}")
    assert len(await api.work_pools()) == count


async def test_a_locked_database_is_asked_again(prefect: FakePrefect, api: PrefectApi) -> None:
    prefect.locked = 2
    run = await api.create_run("chat/chat", {"request": {}}, [])
    assert list(prefect.runs) == [run.id]
    prefect.locked = 99
    with pytest.raises(FlowsUnavailable, match="HTTP 503"):
        await api.work_pools()


async def test_a_child_that_is_not_up(api: PrefectApi) -> None:
    address = PrefectAddress("x", None, "it is being installed")
    async with PrefectApi(address) as client:
        with pytest.raises(FlowsUnavailable, match="it is being installed") as caught:
            await client.work_pools()
    assert caught.value.retry_after_s


async def test_a_child_that_is_gone(unused_tcp_port: int) -> None:
    async with PrefectApi(PrefectAddress("x", f"http://127.0.0.1:{unused_tcp_port}")) as client:
        with pytest.raises(FlowsUnavailable, match="did not answer"):
            await client.work_pools()


async def test_a_child_that_has_moved(prefect: FakePrefect) -> None:
    """The address is read anew for each question."""
    address = prefect.address
    async with PrefectApi(address) as client, FakePrefect() as other:
        assert await client.work_pools() == []
        other.add_pool("cpu")
        address.url = other.url
        assert [pool.name for pool in await client.work_pools()] == ["cpu"]


async def test_a_child_that_hangs(prefect: FakePrefect) -> None:
    hang = asyncio.Event()
    prefect.frozen = hang.wait
    async with PrefectApi(prefect.address, answer_s=0.1) as client:
        with pytest.raises(FlowsUnavailable, match=r"within 0\.1 s"):
            await client.work_pools()
    hang.set()


async def test_a_wrong_password(prefect: FakePrefect) -> None:
    async with PrefectApi(PrefectAddress("Basic bm8=", prefect.url)) as client:
        with pytest.raises(FlowsUnavailable, match="HTTP 401"):
            await client.work_pools()


@pytest.mark.parametrize("answer", [b"", b"<html>", b'{"detail": 1}', b'[{"name": "x"}]'])
async def test_an_answer_of_something_else(prefect: FakePrefect, api: PrefectApi, answer: bytes) -> None:
    prefect.broken = answer
    with pytest.raises(FlowsUnavailable, match=r"not one of Prefect 3\.9"):
        await api.work_pools()
    with pytest.raises(FlowsUnavailable, match=r"not one of Prefect 3\.9"):
        await api.run(RunId(str(uuid4())))
