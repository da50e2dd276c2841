"""Responses in the background, in a real database."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from infra import response_rows
from infra.database import Database
from infra.response_rows import BackgroundResponses
from infra.tables import ResponseRow
from infra.types import ResponseId, RunId
from tests.infra.databases import database, postgres_url

ONE, RUN = ResponseId("resp_1"), RunId("run-1")
ANSWER: dict[str, Any] = {
    "id": "another", "created_at": 9, "status": "completed", "completed_at": 10, "output": ["said"], "usage": {"n": 1},
}  # fmt: skip
ERROR: dict[str, Any] = {"code": "server_error", "message": "it broke"}


__all__ = ["database", "postgres_url"]


@pytest.fixture
def rows(database: Database) -> BackgroundResponses:
    put(database, ONE, "queued")
    return BackgroundResponses(database)


def put(database: Database, name: str, status: str | None) -> None:
    now = datetime.now(UTC)
    response: dict[str, Any] = {"id": name, "created_at": 1, "status": status or "completed", "output": []}
    row = ResponseRow(
        id=name, key_name="ann", size_bytes=0, created_at=now, used_at=now, response=response, input=[], status=status
    )
    with database.write() as session:
        session.add(row)


def found(database: Database, name: str = ONE) -> ResponseRow:
    with database.read() as session:
        row = session.get(ResponseRow, name)
        assert row is not None
        return row


def test_one_is_begun_and_gets_its_answer(database: Database, rows: BackgroundResponses) -> None:
    rows.queued(ONE, RUN)
    (waiting,) = rows.under_way()
    assert (waiting.id, waiting.run) == (ONE, RUN)
    assert rows.begin(ONE, RUN) == "in_progress"
    assert (found(database).status, found(database).response["status"]) == ("in_progress", "in_progress")
    rows.answer(ONE, ANSWER)
    row = found(database)
    assert (row.status, rows.under_way()) == ("completed", [])
    assert row.response == ANSWER | {"id": ONE, "created_at": 1, "error": None}
    assert row.size_bytes > 0


def test_one_that_is_over_stays_so(database: Database, rows: BackgroundResponses) -> None:
    rows.end(ONE, "cancelled")
    rows.end(ONE, "failed", ERROR)
    rows.answer(ONE, ANSWER)
    assert (found(database).status, found(database).response["output"]) == ("cancelled", [])


def test_one_that_failed_is_begun_again(database: Database, rows: BackgroundResponses) -> None:
    rows.end(ONE, "failed", ERROR)
    assert found(database).response["error"] == ERROR
    rows.begin(ONE, RUN)
    rows.answer(ONE, ANSWER)
    assert (found(database).status, found(database).response["error"]) == ("completed", None)


def test_one_that_was_given_up_for_want_of_a_run_waits_again_when_it_has_one(
    database: Database, rows: BackgroundResponses
) -> None:
    rows.end(ONE, "failed", ERROR)
    rows.queued(ONE, RUN)
    assert (found(database).response["status"], found(database).response["error"]) == ("queued", None)
    assert [each.run for each in rows.under_way()] == [RUN]
    rows.end(ONE, "failed", ERROR)
    rows.queued(ONE, RUN)
    assert found(database).status == "failed"


def test_an_answer_is_kept_until_there_is_another(database: Database, rows: BackgroundResponses) -> None:
    rows.answer(ONE, ANSWER)
    assert rows.begin(ONE, RUN) == "completed"
    assert found(database).status == "completed"
    rows.answer(ONE, ANSWER | {"output": ["said anew"]})
    assert found(database).response["output"] == ["said anew"]


def test_of_others_nothing_is_changed(database: Database, rows: BackgroundResponses) -> None:
    put(database, "resp_2", None)
    before = found(database, "resp_2").response
    for name in (ResponseId("resp_2"), ResponseId("nobody")):
        rows.queued(name, RUN)
        assert rows.begin(name, RUN) is None
        rows.answer(name, ANSWER)
        rows.end(name, "failed", ERROR)
    assert (found(database, "resp_2").response, found(database, "resp_2").run_id) == (before, None)


def test_what_two_processes_write_at_once_is_both_there(database: Database, rows: BackgroundResponses) -> None:
    names = [ResponseId(f"resp_at_once_{number}") for number in range(20)]
    for name in names:
        put(database, name, "queued")
    other = BackgroundResponses(database)
    with ThreadPoolExecutor(2) as threads:
        noted = [threads.submit(rows.queued, name, RUN) for name in names]
        told = [threads.submit(other.answer, name, ANSWER) for name in names]
    for each in (*noted, *told):
        each.result()
    assert {(found(database, name).run_id, found(database, name).status) for name in names} == {(RUN, "completed")}


def test_one_that_could_not_be_begun_is_forgotten(database: Database, rows: BackgroundResponses) -> None:
    assert rows.knows(ONE)
    assert rows.is_under_way(ONE)
    rows.forget(ONE)
    rows.forget(ONE)
    assert not rows.knows(ONE)
    assert not rows.is_under_way(ONE)
    assert rows.under_way() == []


def test_what_is_kept_beside_an_answer_counts_too(database: Database, rows: BackgroundResponses) -> None:
    rows.answer(ONE, ANSWER)
    alone = found(database).size_bytes
    rows.answer(ONE, ANSWER, 1000)
    assert found(database).size_bytes == alone + 1000


def test_which_of_many_there_are_no_more(rows: BackgroundResponses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_rows, "_AT_ONCE", 2)
    lost = [ResponseId(f"resp_lost_{number}") for number in range(3)]
    assert rows.gone([lost[0], ONE, *lost[1:]]) == set(lost)
    assert rows.gone([]) == set()
