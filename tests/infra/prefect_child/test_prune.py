"""What is pruned when: by age, by number, and the files that lie about a run. The tables have a test of their own."""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from infra.blobs import Blobs
from infra.errors import NotFound
from infra.prefect_child import prune
from infra.prefect_child.batch import NotReady
from infra.prefect_child.payloads import Mode
from infra.prefect_child.prune import CHUNK_RUNS, Limits, Pruner
from infra.run_files import RunFiles

DAY_S = 86_400.0


class MemoryRows:
    """Runs with the time of their end; `alive` are not over."""

    def __init__(self) -> None:
        self.ended: dict[UUID, datetime] = {}
        self.alive: set[UUID] = set()
        self.chunks: list[int] = []
        self.trouble: Exception | None = None

    def add(self, count: int, age_days: float) -> list[UUID]:
        now, runs = datetime.now(UTC), [uuid4() for _ in range(count)]
        for number, run in enumerate(runs):
            self.ended[run] = now - timedelta(days=age_days) + timedelta(milliseconds=number)
        return runs

    async def count(self) -> int:
        if self.trouble is not None:
            raise self.trouble
        return len(self.ended)

    async def which_are_over(self, runs: Sequence[UUID]) -> set[UUID]:
        return set(runs) & self.ended.keys()

    async def delete_oldest(self, limit: int, ended_before: datetime | None = None) -> list[UUID]:
        assert 0 < limit <= CHUNK_RUNS
        oldest = sorted(self.ended, key=lambda run: self.ended[run])[:limit]
        gone = [run for run in oldest if ended_before is None or self.ended[run] < ended_before]
        for run in gone:
            del self.ended[run]
        self.chunks.append(len(gone))
        return gone


def pruner(rows: MemoryRows, home: Path, *, days: float = 7.0, runs: int = 1000, mode: Mode = "all") -> Pruner:
    return Pruner(rows, home, Limits(days, runs, mode))


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def age_blob(home: Path, store: str, ref: str, seconds: float) -> None:
    age(home / store / ref[7:9] / ref[9:], seconds)


def age_run(home: Path, run: UUID, seconds: float) -> None:
    for path in (home / "runs" / str(run), home / "runs" / str(run) / "steps"):
        age(path, seconds)


async def test_by_age_then_by_number_in_chunks(tmp_path: Path) -> None:
    rows = MemoryRows()
    rows.add(CHUNK_RUNS * 2 + 1, age_days=7.1)
    older, newer = rows.add(30, age_days=3), rows.add(20, age_days=1)
    assert await pruner(rows, tmp_path, runs=40).prune() == CHUNK_RUNS * 2 + 1 + 10
    assert set(rows.ended) == {*older[10:], *newer}
    assert rows.chunks == [CHUNK_RUNS, CHUNK_RUNS, 1, 0, 10]


async def test_fewer_than_the_limits_say_stay(tmp_path: Path) -> None:
    rows = MemoryRows()
    runs = rows.add(40, age_days=6.9)
    assert await pruner(rows, tmp_path, runs=40).prune() == 0
    assert set(rows.ended) == set(runs)


async def test_a_surplus_that_cannot_go_ends_the_round(tmp_path: Path) -> None:
    class Held(MemoryRows):
        async def delete_oldest(self, limit: int, ended_before: datetime | None = None) -> list[UUID]:
            return []

    rows = Held()
    rows.add(10, age_days=1)
    assert await pruner(rows, tmp_path, runs=1).prune() == 0


async def test_the_files_of_a_run_go_with_it(tmp_path: Path) -> None:
    rows, files = MemoryRows(), RunFiles(tmp_path)
    (old,), (new,) = rows.add(1, age_days=8), rows.add(1, age_days=1)
    for run in (old, new):
        files.keep_answer(str(run), b"x", "text/plain")
    await pruner(rows, tmp_path).prune()
    assert (files.answer(str(old)), files.answer(str(new))) == (None, (b"x", "text/plain"))


@pytest.mark.parametrize(("mode", "kept"), [("all", True), ("failed", False), ("none", False)])
async def test_requests_live_a_day_or_as_long_as_runs(tmp_path: Path, mode: Mode, kept: bool) -> None:
    blobs = Blobs(tmp_path / "payloads")
    ref, ancient = blobs.put(b"{}"), blobs.put(b"[]")
    age_blob(tmp_path, "payloads", ref, 1.1 * DAY_S)
    age_blob(tmp_path, "payloads", ancient, 7.1 * DAY_S)
    await pruner(MemoryRows(), tmp_path, mode=mode).prune()
    if kept:
        assert blobs.get(ref) == b"{}"
    else:
        with pytest.raises(NotFound):
            blobs.get(ref)
    with pytest.raises(NotFound):
        blobs.get(ancient)


async def test_jobs_and_files_without_a_run_live_a_day_longer_than_runs(tmp_path: Path) -> None:
    """A job may wait or last as long as runs are kept."""
    jobs, files = Blobs(tmp_path / "jobs"), RunFiles(tmp_path)
    for days, kept in ((7.5, True), (8.5, False)):
        ref, run = jobs.put(b"{}"), uuid4()
        files.keep_step(str(run), "a", 1)
        age_blob(tmp_path, "jobs", ref, days * DAY_S)
        age_run(tmp_path, run, days * DAY_S)
        await pruner(MemoryRows(), tmp_path, mode="all").prune()
        assert bool(files.steps(str(run))) is kept
        if kept:
            assert jobs.get(ref) == b"{}"
        else:
            with pytest.raises(NotFound):
                jobs.get(ref)


@pytest.mark.parametrize(("mode", "left"), [("all", {"over", "alive"}), ("failed", {"alive"}), ("none", {"alive"})])
async def test_results_of_steps_go_with_the_requests_unless_the_run_lives(
    tmp_path: Path, mode: Mode, left: set[str]
) -> None:
    rows, files = MemoryRows(), RunFiles(tmp_path)
    runs = {"over": rows.add(1, age_days=1.5)[0], "alive": uuid4()}
    for run in runs.values():
        files.keep_step(str(run), "a", 1)
        age_run(tmp_path, run, 1.5 * DAY_S)
    await pruner(rows, tmp_path, mode=mode).prune()
    assert {name for name, run in runs.items() if files.steps(str(run))} == left


async def test_old_leftovers_of_the_spool_go(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    for name in ("1.torn", "2.torn", "set-aside.jsonl", "3.seg", "4.open"):
        (spool / name).write_bytes(b"x")
        if name != "2.torn":
            age(spool / name, 8 * DAY_S)
    await pruner(MemoryRows(), tmp_path).prune()
    assert sorted(path.name for path in spool.iterdir()) == ["2.torn", "3.seg", "4.open"]


async def test_others_get_as_much_time_as_pruning_takes(tmp_path: Path) -> None:
    """The loop is free between two chunks, however many there are."""
    rows = MemoryRows()
    rows.add(CHUNK_RUNS * 5, age_days=8)
    turns = 0

    async def somebody_else() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.005)
            turns += 1

    other = asyncio.create_task(somebody_else())
    await pruner(rows, tmp_path).prune()
    other.cancel()
    assert turns >= 5


async def test_a_failed_round_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prune, "FIRST_S", 0.0)
    monkeypatch.setattr(prune, "EVERY_S", 0.01)
    caplog.set_level(logging.WARNING)
    rows = MemoryRows()
    rows.add(3, age_days=1)
    rows.trouble = NotReady("the database is locked")
    task = asyncio.create_task(pruner(rows, tmp_path, runs=1).run_forever())
    async with asyncio.timeout(10):
        while "the database is locked" not in caplog.text:
            await asyncio.sleep(0.01)
        rows.trouble = None
        while len(rows.ended) > 1:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
