"""The runs of a front: under way, cancelled, remembered."""

import asyncio

from api.active import ActiveRuns
from infra.records import RunRecord
from infra.types import KeyName, ModelName, RunId


def record(run: str, started_at: float = 0.0) -> RunRecord:
    return RunRecord(RunId(run), "chat", ModelName("m"), KeyName("k"), started_at, [])


async def test_a_run_is_found_while_it_lasts_and_remembered_after() -> None:
    runs = ActiveRuns()
    active = runs.enter(record("a"))
    assert runs.find(RunId("a")) is active.record
    assert runs.recent(RunId("a")) is None
    runs.leave(active)
    assert runs.find(RunId("a")) is None
    assert runs.recent(RunId("a")) is active.record


async def test_all_of_them_in_the_order_of_their_beginnings() -> None:
    runs = ActiveRuns()
    late, early = runs.enter(record("late", 5.0)), runs.enter(record("early", 1.0))
    runs.leave(late)
    assert [found.id for found in runs.all()] == ["early", "late"]
    runs.leave(early)
    assert len(runs.all()) == 2


async def test_cancel_ends_the_task_once() -> None:
    runs = ActiveRuns()
    entered = asyncio.Event()

    async def work() -> int:
        active = runs.enter(record("a"))
        entered.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return int(active.cancelled)
        finally:
            runs.leave(active)
        return -1

    task = asyncio.create_task(work())
    await entered.wait()
    assert runs.cancel(RunId("a"))
    assert runs.cancel(RunId("a"))
    assert not runs.cancel(RunId("b"))
    assert await task == 1
    assert task.cancelling() == 1
    assert not runs.cancel(RunId("a"))


async def test_a_run_lasts_after_two_seconds() -> None:
    now = [10.0]
    runs = ActiveRuns(lambda: now[0])
    active = runs.enter(record("a", 10.0))
    assert runs.lasting() == []
    now[0] = 12.0
    assert runs.lasting() == [active]
    active.shown = True
    assert runs.lasting() == []
