"""Responses whose run ended without a word: cancelled early, given up, its worker process dead, its record gone."""

import asyncio
from datetime import timedelta

import pytest

from api.openai.responses import store, watch
from api.openai.responses.watch import MOST_TRIES, ResponseWatch
from infra.response_rows import BackgroundResponses
from infra.run_files import RunFiles
from infra.tables import ResponseRow
from infra.types import KeyName, ResponseId
from tests.api.openai.responses.conftest import Background


async def looked(background: Background) -> None:
    await ResponseWatch(background.flows.front.services).look()


def now(background: Background, response: str) -> tuple[str | None, object]:
    database = background.flows.front.services.database
    found = store.get(database, store.Whose(KeyName("user")), ResponseId(response))
    error = found.response["error"]
    return found.status, error["message"] if isinstance(error, dict) else None


def set_state(background: Background, response: str, kind: str, message: str | None = None) -> None:
    background.run(response)["state"] |= {"type": kind, "name": kind.title(), "message": message}


@pytest.mark.parametrize(
    ("kind", "message", "status"),
    [("CANCELLED", None, "cancelled"), ("FAILED", "it broke", "failed"), ("RUNNING", None, "queued")],
)
async def test_the_end_of_its_run_is_its_end(
    background: Background, kind: str, message: str | None, status: str
) -> None:
    response = await background.begun()
    set_state(background, response.id, kind, message)
    await looked(background)
    assert now(background, response.id) == (status, message)


async def test_the_answer_of_its_run_is_its_own(background: Background) -> None:
    kept, lost = await background.begun(), await background.begun()
    for response in (kept, lost):
        set_state(background, response.id, "COMPLETED")
    files = RunFiles(background.flows.front.settings.home)
    answer = b'{"status": "completed", "output": [], "completed_at": 1}'
    files.keep_answer(background.run(kept.id)["id"], answer, "application/json")
    await looked(background)
    assert now(background, kept.id) == ("completed", None)
    assert now(background, lost.id) == ("failed", "the answer of its run is not kept any more; send it again")


async def test_one_whose_worker_died_is_begun_again(background: Background) -> None:
    response = await background.begun()
    set_state(background, response.id, "CRASHED")
    await looked(background)
    assert background.run(response.id)["state"]["name"] == "AwaitingRetry"
    assert now(background, response.id) == ("queued", None)


async def test_one_that_is_cancelled_meanwhile_is_not_begun_again(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    response, rows = await background.begun(), background.rows
    set_state(background, response.id, "CRASHED")
    seen = rows.under_way()
    rows.end(ResponseId(response.id), "cancelled")
    monkeypatch.setattr(BackgroundResponses, "under_way", lambda _self: seen)
    await looked(background)
    assert background.run(response.id)["state"]["type"] == "CRASHED"
    assert now(background, response.id) == ("cancelled", None)


async def test_one_that_ends_every_worker_is_given_up(background: Background) -> None:
    response = await background.begun()
    set_state(background, response.id, "CRASHED", "the worker process died")
    background.run(response.id)["run_count"] = MOST_TRIES
    await looked(background)
    assert now(background, response.id) == ("failed", "the worker process died")


async def test_one_without_its_run(background: Background) -> None:
    gone, unbegun = await background.begun(), await background.begun()
    del background.flows.prefect.runs[background.run(gone.id)["id"]]
    database = background.flows.front.services.database
    with database.write() as session:
        row = session.get(ResponseRow, unbegun.id)
        assert row is not None
        row.run_id = None
        session.add(row)
    await looked(background)
    assert now(background, gone.id) == ("failed", "its run is not kept any more; send it again")
    assert now(background, unbegun.id) == ("queued", None)
    with database.write() as session:
        row = session.get(ResponseRow, unbegun.id)
        assert row is not None
        row.created_at -= timedelta(seconds=61)
        session.add(row)
    await looked(background)
    assert now(background, unbegun.id) == ("failed", "its run could not be made; send it again")


async def test_many_are_looked_at_page_by_page(background: Background, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAGE", 2)
    begun = [await background.begun() for _ in range(3)]
    for response in begun:
        set_state(background, response.id, "CANCELLED")
    await looked(background)
    assert background.rows.under_way() == []


async def test_a_server_that_does_not_answer_is_asked_again(background: Background) -> None:
    response = await background.begun()
    set_state(background, response.id, "CANCELLED")
    prefect = background.flows.prefect
    prefect.broken = b"no json"
    watching = asyncio.create_task(ResponseWatch(background.flows.front.services, 0.01).keep())
    async with asyncio.timeout(5):
        while len(prefect.seen) < 4:
            await asyncio.sleep(0.01)
        prefect.broken = None
        while background.rows.under_way():
            await asyncio.sleep(0.01)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert now(background, response.id)[0] == "cancelled"
