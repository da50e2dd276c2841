"""The worker process's parts without a server beside them; with one: `test_office.py`."""

import asyncio
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from prefect._flow_run_suspension import FlowRunSuspensionRequest, register_flow_run_suspension_request
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.settings import PREFECT_API_URL, temporary_settings

from api import office
from infra.errors import DatabaseUnusable
from infra.settings import load_settings
from tests.ports import free_port
from workers.jobs.crew import Crew
from workers.jobs.live import Job
from workers.jobs.worker import Desk


async def test_a_stop_is_heard_while_no_server_answers() -> None:
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/flows/api"}):
        stopped, waiting = asyncio.Event(), office._until_prefect_answers()
        asyncio.get_running_loop().call_later(0.1, stopped.set)
        async with asyncio.timeout(5):
            assert not await office._is_heard(waiting, stopped)


async def test_what_answers_is_heard() -> None:
    assert await office._is_heard(asyncio.sleep(0), asyncio.Event())


async def test_jobs_of_whose_state_no_event_told_are_looked_at() -> None:
    """The reading that follows an event may have failed."""
    ours = [Job(uuid4()) for _ in range(3)]
    suspended = FlowRun(id=ours[0].run, flow_id=uuid4(), state=State(type=StateType.PAUSED, name="Suspended"))
    cancelled = FlowRun(id=ours[1].run, flow_id=uuid4(), state=State(type=StateType.CANCELLED))
    asked: list[FlowRunFilter] = []

    async def read_flow_runs(*, flow_run_filter: FlowRunFilter) -> list[FlowRun]:
        asked.append(flow_run_filter)
        return [suspended, cancelled]

    nothing: Any = None
    client: Any = SimpleNamespace(read_flow_runs=read_flow_runs)
    desk = Desk({}, nothing)
    house = office.House(client, nothing, nothing, desk, Crew(desk))
    await house.look_at_jobs()
    assert asked == [], "there are none"
    for job in ours:
        job.started_at = 0.0
        desk.live[job.run] = job
    request = FlowRunSuspensionRequest()
    with register_flow_run_suspension_request(suspended.id, request):
        await house.look_at_jobs()
    assert request.get_state() == suspended.state
    assert [job.end for job in ours] == [None, "cancelled", None]
    assert asked[0].id is not None
    assert asked[0].id.any_ == [job.run for job in ours]


async def test_a_database_that_is_away_holds_up_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """To find that out takes minutes, in which the process has to give signs of life."""
    threads: list[threading.Thread] = []

    def open_database(_url: str) -> None:
        threads.append(threading.current_thread())
        raise DatabaseUnusable("it does not answer")

    monkeypatch.setattr(office, "open_database", open_database)
    monkeypatch.setattr(office, "get_client", nullcontext)
    monkeypatch.setattr(office, "AsyncClientContext", SimpleNamespace(get_or_create=nullcontext))
    with pytest.raises(DatabaseUnusable):
        async with office._house(load_settings(home=tmp_path), "token"):
            raise AssertionError("there is no house without it")
    assert threads
    assert threads[0] is not threading.current_thread()
