"""`/v1/batches` through the client library: what becomes a flow run, what is refused, and whose batches they are."""

from collections.abc import AsyncIterator

import openai
import pytest

from infra.batch_rows import BatchProblem
from infra.types import BatchId
from tests.api.beside_prefect import Flows, beside_prefect
from tests.api.conftest import StartFront
from tests.api.openai.test_files import client

LINE = (
    b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "tiny", "messages": []}}\n'
)


@pytest.fixture
async def flows(start_front: StartFront) -> AsyncIterator[Flows]:
    async with beside_prefect(start_front) as both:
        yield both


async def sent(mine: openai.AsyncOpenAI, purpose: str = "batch") -> str:
    file = await mine.files.create(file=("in.jsonl", LINE), purpose=purpose)  # type: ignore[arg-type]
    return file.id


async def begun(mine: openai.AsyncOpenAI) -> openai.types.Batch:
    return await mine.batches.create(
        completion_window="24h",
        endpoint="/v1/chat/completions",
        input_file_id=await sent(mine),
        metadata={"night": "yes"},
        output_expires_after={"anchor": "created_at", "seconds": 3600},
    )


async def test_a_batch_is_one_flow_run(flows: Flows) -> None:
    async with client(flows.front) as mine:
        batch = await begun(mine)
        (row,) = flows.prefect.runs.values()
        assert row["parameters"] == {"request": {"batch": batch.id}}
        assert sorted(row["tags"]) == sorted([f"batch:{batch.id}", "key:user", "lane:job"])
        assert row["deployment_id"] == flows.prefect.deployments["batch"]
        assert (batch.object, batch.status, batch.metadata) == ("batch", "validating", {"night": "yes"})
        assert batch.request_counts is not None
        assert (batch.request_counts.total, batch.errors) == (0, None)
        assert batch.expires_at == batch.created_at + 86_400
        assert await mine.batches.retrieve(batch.id) == batch
        assert [one.id async for one in mine.batches.list()] == [batch.id]


async def test_its_progress_and_its_end_are_told(flows: Flows) -> None:
    batches = flows.front.services.files.batches
    async with client(flows.front) as mine:
        batch = await begun(mine)
        batches.move(BatchId(batch.id), "in_progress")
        batches.count(BatchId(batch.id), 10, 4, 1)
        now = await mine.batches.retrieve(batch.id)
        assert now.request_counts is not None
        assert (now.status, now.request_counts.completed, now.request_counts.failed) == ("in_progress", 4, 1)
        assert now.in_progress_at is not None
        batches.move(BatchId(batch.id), "failed", [BatchProblem(code="x", message="y", line=2)])
        now = await mine.batches.retrieve(batch.id)
        assert now.errors is not None
        assert now.errors.data is not None
        assert (now.status, now.errors.data[0].line) == ("failed", 2)


async def test_cancelling_ends_its_run(flows: Flows) -> None:
    async with client(flows.front) as mine:
        batch = await begun(mine)
        assert (await mine.batches.cancel(batch.id)).status == "cancelling"
        (row,) = flows.prefect.runs.values()
        assert row["state"]["type"] == "CANCELLED"  # it had not begun
        flows.front.services.files.batches.finish(BatchId(batch.id), "cancelled", {})
        with pytest.raises(openai.ConflictError):
            await mine.batches.cancel(batch.id)


async def test_another_key_s_batches_and_files(flows: Flows) -> None:
    async with client(flows.front) as mine, client(flows.front, "node") as other, client(flows.front, "admin") as admin:
        batch = await begun(mine)
        for reach in (other.batches.retrieve, other.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                await reach(batch.id)
        assert [one.id async for one in other.batches.list()] == []
        assert [one.id async for one in admin.batches.list()] == [batch.id]
        with pytest.raises(openai.BadRequestError) as caught:
            await other.batches.create(
                completion_window="24h", endpoint="/v1/chat/completions", input_file_id=batch.input_file_id
            )
        assert caught.value.param == "input_file_id"


async def test_what_is_no_batch(flows: Flows) -> None:
    async with client(flows.front) as mine:
        good = {"input_file_id": await sent(mine), "endpoint": "/v1/embeddings", "completion_window": "24h"}
        wrong = await sent(mine, "user_data")
    for change, param in (
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"endpoint": "/v1/responses/compact"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": "file-x"}, "input_file_id"),
        ({"input_file_id": wrong}, "input_file_id"),
        ({"metadata": {"a": "b" * 600}}, "metadata.a"),
        ({"more": 1}, "more"),
    ):
        status, body = await flows.front.post("/v1/batches", good | change)
        assert (status, body["error"]["param"]) == (400, param), change
    assert flows.prefect.runs == {}
    assert (await flows.front.get("/v1/batches/nope"))[0] == 404


async def test_without_flow_runs_nothing_is_kept(flows: Flows) -> None:
    async with client(flows.front) as mine:
        flows.use(None)
        with pytest.raises(openai.APIStatusError) as caught:
            await begun(mine)
        assert caught.value.status_code == 503
        assert [one.id async for one in mine.batches.list()] == []
