"""What `tests.fakes_prefect_api` claims of Prefect's API is true of the real server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from infra.errors import FlowsUnavailable, NotFound
from infra.prefect_address import PrefectAddress
from infra.prefect_api import PrefectApi
from infra.prefect_shapes import RunFilter, StateType
from infra.types import Json, PoolId, RunId
from tests.fakes_prefect_api import FakePrefect
from tests.infra.prefect_child.records import fan_out
from tests.ports import free_port
from tests.prefect_server import PrefectServer, running_server

pytestmark = pytest.mark.enable_socket


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """A server of its own: on the session's, the job lane's worker would run what is only to be looked at."""
    with running_server(tmp_path_factory.mktemp("contract") / "home", free_port()) as server:
        server.register()
        yield server


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.slow)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[PrefectApi]:
    if request.param == "real":
        server: PrefectServer = request.getfixturevalue("undisturbed")
        async with PrefectApi(PrefectAddress(server.authorization, server.url)) as client:
            yield client
        return
    async with FakePrefect() as fake, PrefectApi(fake.address) as client:
        fake.add_pool("head", type="coderai-head")
        fake.add_pool("cpu")
        yield client


async def test_a_new_run(api: PrefectApi) -> None:
    request: dict[str, Json] = {
        "messages": [{"role": "user", "content": "hé"}],
        "temperature": 0.1,
        "seed": 2**53,
        "stop": None,
    }
    made = await api.create_run("chat/chat", {"request": request}, ["key:ann", "lane:job"])
    read = await api.run(made.id)
    assert read is not None
    for run in (made, read):
        assert run.parameters == {"request": request}
        assert set(run.tags) >= {"key:ann", "lane:job"}
        assert (run.run_count, run.start_time, run.end_time, run.terminal) == (0, None, None, False)
        assert run.deployment_id is not None
    assert read.state is not None
    assert read.state.type == "SCHEDULED"
    assert await api.flow_name(made.flow_id) == "chat"
    assert await api.run(RunId(str(uuid4()))) is None
    assert await api.flow_name(uuid4()) is None
    assert (await api.task_runs(made.id), await api.logs(made.id), await api.artifacts(made.id)) == ([], [], [])


async def test_an_idempotency_key(api: PrefectApi) -> None:
    key = uuid4().hex
    first = await api.create_run("chat/chat", {"request": {"n": 1}}, [], key)
    again = await api.create_run("chat/chat", {"request": {"n": 2}}, [], key)
    assert (again.id, again.parameters) == (first.id, {"request": {"n": 1}})
    assert (await api.create_run("rerank/rerank", {"request": {}}, [], key)).id != first.id


async def test_a_deployment_that_is_not_there(api: PrefectApi) -> None:
    with pytest.raises(FlowsUnavailable, match="no deployment"):
        await api.create_run("chat/other", {"request": {}}, [])


async def test_which_runs(api: PrefectApi) -> None:
    tag = f"key:{uuid4().hex}"
    runs = []
    for number in range(3):
        runs.append(await api.create_run("chat/chat", {"request": {}}, [tag, f"model:m{number % 2}"]))
        await asyncio.sleep(0.01)
    ids = [run.id for run in reversed(runs)]
    await api.set_state(runs[2].id, "CANCELLED")  # which makes this its start, too
    every = RunFilter(tags=(tag,))
    assert [run.id for run in await api.runs(every)] == ids
    assert await api.count(every) == 3
    assert [run.id for run in await api.runs(every, 2)] == ids[:2]
    assert [run.id for run in await api.runs(every, 2, 2)] == ids[2:]
    assert [run.id for run in await api.runs(RunFilter(tags=(tag, "model:m1")))] == [ids[1]]
    assert [run.id for run in await api.runs(RunFilter(tags=(tag,), states=("CANCELLED", "FAILED")))] == [ids[0]]
    assert [run.id for run in await api.runs(RunFilter(ids=(ids[0], ids[2])))] == [ids[0], ids[2]]
    before = runs[1].expected_start_time
    assert [run.id for run in await api.runs(RunFilter(tags=(tag,), before=before))] == ids[1:]
    assert await api.runs(RunFilter(tags=(tag[:-1],))) == []


async def test_states(api: PrefectApi) -> None:
    run = (await api.create_run("chat/chat", {"request": {}}, [])).id
    assert (await api.set_state(run, "CANCELLED", "Cancelled", "by ann")).accepted
    ended = await api.run(run)
    assert ended is not None
    assert ended.terminal
    assert ended.state is not None
    assert ended.state.message == "by ann"
    refused = await api.set_state(run, "CANCELLING", "Cancelling")
    assert not refused.accepted
    assert refused.reason
    told = await api.set_state(run, "SCHEDULED", "AwaitingRetry", "again", force=True)
    assert told.accepted
    assert told.state is not None
    assert told.state.name == "AwaitingRetry"
    with pytest.raises(NotFound):
        await api.set_state(RunId(str(uuid4())), "CANCELLED")


async def test_one_that_waits_is_over_at_once_and_one_that_was_handed_out_is_told(api: PrefectApi) -> None:
    handed_out: list[tuple[StateType, ...]] = [("PENDING",), ("PENDING", "RUNNING")]
    for states, then in (((), "CANCELLED"), *((states, "CANCELLING") for states in handed_out)):
        run = (await api.create_run("chat/chat", {"request": {}}, [])).id
        for kind in states:
            assert (await api.set_state(run, kind)).accepted
        assert (await api.end(run, "by ann")).accepted
        ended = await api.run(run)
        assert ended is not None
        assert ended.state is not None
        assert (ended.state.type, ended.state.message) == (then, "by ann")


async def test_work_pools(api: PrefectApi) -> None:
    pools = {pool.name: pool for pool in await api.work_pools()}
    assert {name: pools[PoolId(name)].type for name in ("head", "cpu")} == {
        "head": "coderai-head",
        "cpu": "coderai-card",
    }
    cpu = PoolId("cpu")
    await api.change_pool(cpu, {"is_paused": True, "concurrency_limit": 2})
    (pool,) = [pool for pool in await api.work_pools() if pool.name == cpu]
    assert (pool.is_paused, pool.concurrency_limit) == (True, 2)
    await api.change_pool(cpu, {"is_paused": False, "concurrency_limit": None})
    (pool,) = [pool for pool in await api.work_pools() if pool.name == cpu]
    assert (pool.is_paused, pool.concurrency_limit) == (False, None)
    with pytest.raises(NotFound):
        await api.change_pool(PoolId("none/such"), {"is_paused": True})


@pytest.mark.slow
async def test_a_recorded_run(undisturbed: PrefectServer) -> None:
    """What the recorder writes is read here as it was meant."""
    record = fan_out()
    await asyncio.to_thread(undisturbed.record, record)
    async with PrefectApi(PrefectAddress(undisturbed.authorization, undisturbed.url)) as api:
        run = await api.run(record.id)
        assert run is not None
        assert (run.tag("key"), run.tag("model"), run.terminal) == (record.key, record.model, True)
        assert run.start_time is not None
        assert run.start_time.timestamp() == pytest.approx(record.started_at, abs=1e-5)
        tasks = {task.name: task for task in await api.task_runs(record.id)}
        parents = {parent.id for parent in tasks["join"].task_inputs["parents"]}
        assert parents == {tasks["part-0"].id, tasks["part-1"].id}
        (report,) = [artifact for artifact in await api.artifacts(record.id) if artifact.type == "markdown"]
        assert isinstance(report.data, str)
        assert await api.logs(record.id)


@pytest.mark.slow
async def test_prefect_renders_templates_in_parameters(undisturbed: PrefectServer) -> None:
    """Why a client's words never stand in a parameter where they look so (`api.jobs`)."""
    template: dict[str, Json] = {"__prefect_kind": "jinja", "template": "{{ 'ab' | upper }}"}
    async with PrefectApi(PrefectAddress(undisturbed.authorization, undisturbed.url)) as api:
        run = await api.create_run("chat/chat", {"request": {"note": template}}, [])
    assert run.parameters == {"request": {"note": "AB"}}
