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
from infra.response_rows import BackgroundResponses
from infra.tables import ResponseRow
from infra.types import RunId
from workers.jobs.live import CURRENT, End, Job

RUN = RunId(str(uuid4()))
TAGS = ("key:ann", "response:resp_1", "lane:job")
ANSWER: dict[str, Any] = {"status": "incomplete", "output": ["said"]}


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


async def ended(database: Database, error: BaseException) -> dict[str, Any]:
    """The response after its job has ended so."""

    async def job() -> None:
        async with JobResponse(BackgroundResponses(database), RUN, TAGS):
            assert found(database).status == "in_progress"
            raise error

    with pytest.raises(type(error)):
        await job()
    return dict(found(database).response)


async def test_its_answer(database: Database) -> None:
    async with JobResponse(BackgroundResponses(database), RUN, TAGS) as response:
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
async def test_why_there_is_none(database: Database, error: Exception, code: str, message: str) -> None:
    response = await ended(database, error)
    assert (response["status"], response["error"]) == ("failed", {"code": code, "message": message})


@pytest.mark.parametrize(("end", "status"), [("cancelled", "cancelled"), ("stopped", "in_progress")])
async def test_one_that_is_stopped_goes_on_later(database: Database, end: End, status: str) -> None:
    CURRENT.set(Job(uuid4(), end=end))
    assert (await ended(database, asyncio.CancelledError()))["status"] == status


async def test_a_run_of_another_kind_tells_nobody(database: Database) -> None:
    async with JobResponse(BackgroundResponses(database), RUN, ("key:ann",)) as response:
        await response.keep(b"no json")
    assert found(database).status == "queued"


async def test_an_end_that_cannot_be_told_hides_no_error(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def job() -> None:
        async with JobResponse(BackgroundResponses(database), RUN, TAGS):
            with database.connection() as connection:
                connection.exec_driver_sql("ALTER TABLE response RENAME TO gone")
            raise EngineFailed("it broke")

    with pytest.raises(EngineFailed):
        await job()
    assert "resp_1 has not heard" in caplog.text
