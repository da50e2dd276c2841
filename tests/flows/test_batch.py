"""A batch carried out, with a stand-in for what does one request: order, failures, another try, its time, its end."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from flows import batch as module
from flows.batch import AT_ONCE, BatchRun
from infra.batch_lines import CustomId, Results
from infra.batch_rows import Batch, Batches, NewBatch
from infra.errors import CoderAIError, InvalidRequest, NoCapacity, Nowhere
from infra.file_rows import Files
from infra.types import FileId, Json
from tests.infra.test_batch_lines import URL, line
from tests.infra.test_batch_rows import sent
from tests.infra.test_file_rows import ME, Clock, clock, database, files

__all__ = ["clock", "database", "files"]


class Doing:
    """Does requests; `fails` says what becomes of one by its number."""

    def __init__(self, fails: Callable[[int], CoderAIError | None] = lambda _number: None) -> None:
        self.asked: list[int] = []
        self.fails = fails
        self.busy = self.busiest = 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, body: dict[str, Json]) -> bytes:
        number = int(str(body["model"]))
        self.asked.append(number)
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            await asyncio.sleep(0.001)
            await self.hold.wait()
            error = self.fails(number)
            if error is not None:
                raise error
            return orjson.dumps({"answer": number})
        finally:
            self.busy -= 1


def begun(files: Files, count: int, data: bytes | None = None) -> Batch:
    text = b"".join(line(f"c{n}", body={"model": str(n)}) for n in range(count)) if data is None else data
    file = sent(files, text)
    return Batches(files).create(NewBatch(key=ME, flow="chat", endpoint=URL, input_file=file.id), ME)


def run_of(files: Files, batch: Batch, doing: Doing, tmp_path: Path, clock: Clock) -> tuple[BatchRun, list[Batch]]:
    told: list[Batch] = []

    async def tell(now: Batch) -> None:
        told.append(now)

    results = Results(tmp_path / "run" / "batch")
    return BatchRun(batch, Batches(files), results, doing, tell, clock), told


def lines_of(files: Files, file: FileId | None) -> dict[str, Any]:
    assert file is not None
    with files.open(files.get(file, ME)) as source:
        return {orjson.loads(each)["custom_id"]: orjson.loads(each) for each in source}


async def test_what_is_done_is_told_while_others_take_their_time(files: Files, tmp_path: Path, clock: Clock) -> None:
    batch = begun(files, 2 * AT_ONCE)
    run, told = run_of(files, batch, Doing(), tmp_path, clock)
    quick, held = run.do, asyncio.Event()

    async def do(body: dict[str, Json]) -> bytes:
        if int(str(body["model"])) >= AT_ONCE:
            await held.wait()
        return await quick(body)

    run.do, run.tell_s = do, 0.01
    carried = asyncio.create_task(run.carry_out())
    async with asyncio.timeout(5):
        while told[-1:] == [] or told[-1].completed < AT_ONCE:
            await asyncio.sleep(0.01)
    assert run.batches.get(batch.id, ME).completed == AT_ONCE
    held.set()
    assert (await carried).completed == 2 * AT_ONCE


async def test_every_request_has_its_result(files: Files, tmp_path: Path, clock: Clock) -> None:
    batch = begun(files, 50)
    doing = Doing(lambda number: InvalidRequest("no", code="odd") if number == 7 else None)
    run, told = run_of(files, batch, doing, tmp_path, clock)
    ended = await run.carry_out()
    assert (ended.status, ended.total, ended.completed, ended.failed) == ("completed", 50, 49, 1)
    outputs, errors = lines_of(files, ended.output_file), lines_of(files, ended.error_file)
    assert outputs["c3"]["response"]["body"] == {"answer": 3}
    assert (outputs["c3"]["response"]["status_code"], outputs["c3"]["error"]) == (200, None)
    assert list(errors) == ["c7"]
    refused = errors["c7"]["response"]
    assert (refused["status_code"], refused["request_id"], errors["c7"]["error"]) == (400, errors["c7"]["id"], None)
    assert refused["body"]["error"] == {
        "message": "no", "type": "invalid_request_error", "param": None, "code": "odd",
    }  # fmt: skip
    assert doing.busiest <= AT_ONCE
    assert told[0].total == 50
    assert told[-1].status == "completed"
    assert {"in_progress_at", "finalizing_at", "completed_at"} <= set(ended.moments)


async def test_another_try_does_what_is_left(files: Files, tmp_path: Path, clock: Clock) -> None:
    batch = begun(files, 30)
    doing = Doing()
    run, _ = run_of(files, batch, doing, tmp_path, clock)
    task = asyncio.create_task(run.carry_out())
    while len(run.results.done) < 10:
        await asyncio.sleep(0.001)
    doing.hold.clear()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    done = len(run.results.done)
    assert Batches(files).get(batch.id, ME).status == "in_progress"
    again = Doing()
    run, _ = run_of(files, Batches(files).get(batch.id, ME), again, tmp_path, clock)
    ended = await run.carry_out()
    assert (ended.status, ended.completed) == ("completed", 30)
    # A result that was just being written when the first try ended has come to the disk after the count.
    assert 30 - done - AT_ONCE <= len(again.asked) <= 30 - done
    assert len(lines_of(files, ended.output_file)) == 30
    assert (await run.carry_out()).status == "completed"


async def test_one_that_is_cut_short_keeps_what_is_done(files: Files, tmp_path: Path, clock: Clock) -> None:
    batch = begun(files, 5)
    run, _ = run_of(files, batch, Doing(), tmp_path, clock)
    run.results.open()
    run.results.add("output", CustomId("c0"), {"response": {}})
    Batches(files).cancel(batch.id, ME)
    ended = await run.cut_short()
    assert (ended.status, ended.completed) == ("cancelled", 1)
    assert list(lines_of(files, ended.output_file)) == ["c0"]


async def test_a_bad_input_is_refused_with_its_lines(files: Files, tmp_path: Path, clock: Clock) -> None:
    batch = begun(files, 0, line("a") + b"no\n" + line("a"))
    run, _ = run_of(files, batch, Doing(), tmp_path, clock)
    with pytest.raises(CoderAIError):
        await run.carry_out()
    failed = Batches(files).get(batch.id, ME)
    assert failed.status == "failed"
    assert [(problem.line, problem.code) for problem in failed.errors] == [
        (2, "invalid_json_line"), (3, "duplicate_custom_id"),
    ]  # fmt: skip


async def test_when_its_time_is_over(files: Files, tmp_path: Path, clock: Clock) -> None:
    batch = begun(files, 3)
    clock.now_s += 86_400
    run, _ = run_of(files, batch, Doing(), tmp_path, clock)
    ended = await run.carry_out()
    assert (ended.status, ended.completed, ended.failed) == ("expired", 0, 3)
    assert {each["error"]["code"] for each in lines_of(files, ended.error_file).values()} == {"batch_expired"}


async def test_what_cannot_be_taken_now_is_asked_again(
    files: Files, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, tries = begun(files, 2), [0, 0]

    def busy(number: int) -> CoderAIError | None:
        tries[number] += 1
        return NoCapacity("later", retry_after_s=0.001) if number == 1 or tries[number] < 3 else None

    monkeypatch.setattr(module, "PATIENCE_S", 3.0)
    run, _ = run_of(files, batch, Doing(busy), tmp_path, clock)
    ended = await run.carry_out()
    assert (ended.completed, ended.failed) == (1, 1)
    assert lines_of(files, ended.error_file)["c1"]["response"]["body"]["error"]["code"] == "no_capacity"


async def test_what_has_no_place_is_not_asked_again(files: Files, tmp_path: Path, clock: Clock) -> None:
    batch, tries = begun(files, 2), [0, 0]

    def nowhere(number: int) -> CoderAIError | None:
        tries[number] += 1
        return Nowhere("it was given up", retry_after_s=0.001)

    run, _ = run_of(files, batch, Doing(nowhere), tmp_path, clock)
    ended = await run.carry_out()
    assert (ended.completed, ended.failed, tries) == (0, 2, [1, 1])
    assert lines_of(files, ended.error_file)["c1"]["response"]["body"]["error"]["message"] == "it was given up"


async def test_a_mistake_of_ours_ends_it_at_once(files: Files, tmp_path: Path, clock: Clock) -> None:
    async def broken(_body: dict[str, Json]) -> bytes:
        raise KeyError("x")

    doing: Callable[[dict[str, Json]], Awaitable[bytes]] = broken
    run, _ = run_of(files, begun(files, 20), Doing(), tmp_path, clock)
    run.do = doing
    with pytest.raises(KeyError):
        await run.carry_out()
