"""What the stored response of a job hears."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from flows.job_response import JobResponse
from infra.database import Database, open_database
from infra.errors import EngineFailed, InvalidRequest
from infra.migrate import migrate
from infra.response_events import ResponseEvents
from infra.response_rows import BackgroundResponses
from infra.tables import ResponseRow
from infra.types import ResponseId, RunId
from tasks.responses.events import encoded
from workers.jobs.live import CURRENT, End, Job

ONE = ResponseId("resp_1")
RUN = RunId(str(uuid4()))
TAGS = ("key:ann", "response:resp_1", "lane:job")
ANSWER: dict[str, Any] = {"status": "incomplete", "output": ["said"]}
ADDED: dict[str, Any] = {
    "type": "response.output_item.added",
    "sequence_number": 2,
    "output_index": 0,
    "item": {"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []},
}


@pytest.fixture
def events(tmp_path: Path) -> ResponseEvents:
    return ResponseEvents(tmp_path)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path / 'coderai.db'}")
    migrate(opened)
    now = datetime.now(UTC)
    row = ResponseRow(
        id="resp_1", key_name="ann", size_bytes=0, created_at=now, used_at=now, response={}, input=[], status="queued"
    )
    with opened.write() as session:
        session.add(row)
    yield opened
    opened.close()


def found(database: Database) -> ResponseRow:
    with database.read() as session:
        row = session.get(ResponseRow, "resp_1")
        assert row is not None
        return row


async def ended(database: Database, events: ResponseEvents, error: BaseException) -> dict[str, Any]:
    """The response after its job has ended so."""

    async def job() -> None:
        async with JobResponse(BackgroundResponses(database), events, RUN, TAGS):
            assert found(database).status == "in_progress"
            raise error

    with pytest.raises(type(error)):
        await job()
    return dict(found(database).response)


async def test_its_answer(database: Database, events: ResponseEvents) -> None:
    async with JobResponse(BackgroundResponses(database), events, RUN, TAGS) as response:
        assert (found(database).status, found(database).run_id) == ("in_progress", RUN)
        await response.keep(orjson.dumps(ANSWER))
    assert found(database).response == ANSWER | {"error": None}


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (EngineFailed("it broke"), "server_error", "it broke"),
        (InvalidRequest("too long"), "invalid_prompt", "too long"),
        (ValueError("secret"), "server_error", "ValueError"),
    ],
)
async def test_why_there_is_none(
    database: Database, events: ResponseEvents, error: Exception, code: str, message: str
) -> None:
    response = await ended(database, events, error)
    assert (response["status"], response["error"]) == ("failed", {"code": code, "message": message})


@pytest.mark.parametrize(("end", "status"), [("cancelled", "cancelled"), ("stopped", "in_progress")])
async def test_one_that_is_stopped_goes_on_later(
    database: Database, events: ResponseEvents, end: End, status: str
) -> None:
    CURRENT.set(Job(uuid4(), end=end))
    assert (await ended(database, events, asyncio.CancelledError()))["status"] == status
    assert events.read(ONE, 0).closed == (status == "cancelled"), "another try has more to tell"


class Suspended(BaseException):
    """As Prefect's own: it goes past all that catches errors."""


async def test_one_that_is_suspended_goes_on_later(database: Database, events: ResponseEvents) -> None:
    assert (await ended(database, events, Suspended()))["status"] == "in_progress"
    assert not events.read(ONE, 0).closed


async def test_what_was_told_of_one_that_failed_is_counted(database: Database, events: ResponseEvents) -> None:
    async def job(text: str) -> None:
        async with JobResponse(BackgroundResponses(database), events, RUN, TAGS) as response:
            assert response.channel is not None
            await response.channel.write(encoded({**ADDED, "item": {**ADDED["item"], "id": text}}))
            raise EngineFailed("it broke")

    with pytest.raises(EngineFailed):
        await job("m" * 500)
    assert found(database).size_bytes > events.size_bytes(ONE) > 500


async def test_one_that_was_deleted_is_gone(database: Database, events: ResponseEvents) -> None:
    responses = BackgroundResponses(database)
    async with JobResponse(responses, events, RUN, TAGS) as response:
        assert not await response.is_gone()
        responses.forget(ONE)
        await response.keep(orjson.dumps(ANSWER))
        assert await response.is_gone()


async def test_a_run_of_another_kind_tells_nobody(database: Database, events: ResponseEvents) -> None:
    async with JobResponse(BackgroundResponses(database), events, RUN, ("key:ann",)) as response:
        await response.keep(b"no json")
        assert not await response.is_gone()
    assert (found(database).status, response.channel, events.known()) == ("queued", None, [])


async def test_an_end_that_cannot_be_told_hides_no_error(
    database: Database, events: ResponseEvents, caplog: pytest.LogCaptureFixture
) -> None:
    async def job() -> None:
        async with JobResponse(BackgroundResponses(database), events, RUN, TAGS):
            with database.connection() as connection:
                connection.exec_driver_sql("ALTER TABLE response RENAME TO gone")
            raise EngineFailed("it broke")

    with pytest.raises(EngineFailed):
        await job()
    assert "resp_1 has not heard" in caplog.text
    assert not events.read(ONE, 0).closed, "it may be made anew"


async def test_what_it_tells_is_kept_until_its_end(database: Database, events: ResponseEvents) -> None:
    async with JobResponse(BackgroundResponses(database), events, RUN, TAGS) as response:
        assert response.channel is not None
        before_s = response.first_token_s
        await response.channel.write(encoded(ADDED))
        after_s = response.first_token_s
        assert before_s is None
        assert after_s is not None
        assert after_s > 0
        assert not events.read(ONE, 0).closed
        await response.keep(orjson.dumps(ANSWER))
        assert events.read(ONE, 0).closed, "who follows it need not wait for the job's last words"
    told = events.read(ONE, 0)
    assert told.data.count(b"\n") == 1
    row = found(database)
    assert row.size_bytes == len(orjson.dumps(row.response)) + len(b"[]") + len(told.data)


async def test_one_that_was_deleted_tells_nothing(database: Database, events: ResponseEvents) -> None:
    BackgroundResponses(database).forget(ONE)
    async with JobResponse(BackgroundResponses(database), events, RUN, TAGS) as response:
        assert response.channel is None
        await response.keep(orjson.dumps(ANSWER))
    assert events.known() == []


async def test_another_answer_takes_with_it_what_the_first_one_told(database: Database, events: ResponseEvents) -> None:
    async with JobResponse(BackgroundResponses(database), events, RUN, TAGS) as response:
        await response.keep(orjson.dumps(ANSWER))
    assert events.known() == [ONE]
    async with JobResponse(BackgroundResponses(database), events, RUN, TAGS) as again:
        assert again.channel is None, "those who follow it are told of the answer that it has"
        assert events.known() == [ONE]
        await again.keep(orjson.dumps(ANSWER | {"output": ["said anew"]}))
    assert (found(database).response["output"], events.known()) == (["said anew"], [])
