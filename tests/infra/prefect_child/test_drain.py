"""The drainer: everything in the spool becomes a row once, whatever is torn, refused, locked or full on the way."""

import asyncio
import contextlib
import logging
from pathlib import Path

import orjson
import pytest

from infra.blobs import Blobs
from infra.prefect_child.batch import NotReady, Recorded, RowsRefused, SchemaUnknown
from infra.prefect_child.drain import LONGEST_PAUSE_S, PATIENCE, POLL_S, Drainer
from infra.prefect_child.payloads import PayloadKeeper
from infra.prefect_child.segments import BATCH_LINES
from infra.recorder_status import SET_ASIDE_FILE, RecorderStatus, StatusFile, read_status
from infra.records import Boot, Payload, RunRecord
from infra.run_files import RunFiles
from infra.spool import Spool
from infra.types import Json
from tests.infra.disks import small_disk
from tests.infra.prefect_child.sinks import MemorySink
from tests.infra.prefect_child.spooled import make_run, run_id, write_segment

__all__ = ["small_disk"]


class Install:
    """A drainer over a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.spool = home / "spool"
        self.spool.mkdir()
        self.sink = MemorySink()
        self.files = RunFiles(home)
        self.drainer = self.another()

    def another(self) -> Drainer:
        """A drainer that knows nothing of the one before."""
        keeper = PayloadKeeper("all", Blobs(self.home / "payloads"), self.files)
        clock = iter(range(10**9)).__next__
        status = StatusFile(self.home, clock=lambda: float(clock() * 2))  # two seconds a look: each is written
        return Drainer(self.spool, self.sink.record, keeper, status)

    async def drain(self, turns: int = 50) -> None:
        """Turns until there is nothing to do."""
        for _ in range(turns):
            if await self.drainer.turn() == POLL_S:
                return

    @property
    def status(self) -> RecorderStatus:
        status = read_status(self.home)
        assert status is not None
        return status

    @property
    def left(self) -> list[str]:
        return sorted(path.name for path in self.spool.iterdir())

    def set_aside(self) -> list[dict[str, Json]]:
        return [orjson.loads(line) for line in (self.spool / SET_ASIDE_FILE).read_bytes().splitlines()]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return Install(tmp_path)


async def test_what_the_front_wrote_arrives_in_its_order(install: Install) -> None:
    spool = Spool(install.spool, max_bytes=1 << 20, segment_bytes=2000)
    spool.append(make_run(0, "running", {"model": "m"}))
    spool.begin(Boot("boot-2", 5.0))
    for number in range(1, 20):
        spool.append(make_run(number, "completed", {"model": "m", "n": number}))
    await install.drain()
    spool.append(make_run(20))
    assert await install.drainer.turn() == POLL_S
    assert [path.suffix for path in install.spool.iterdir()] == [".open"]
    spool.close()
    await install.drain()
    assert install.sink.ids == [run_id(number) for number in range(21)]
    assert install.sink.boots == ["boot-2"]
    assert [run.parameter for run in install.sink.runs][1:20] == [
        {"model": "m", "n": number} for number in range(1, 20)
    ]
    assert install.left == []
    assert (install.status.state, install.status.recorded, install.status.waiting_segments) == ("recording", 21, 0)


async def test_until_its_first_turn_it_is_starting(install: Install) -> None:
    write_segment(install.spool, 1, make_run(1).line())
    install.another()
    assert (install.status.state, install.status.waiting_segments) == ("starting", 1)
    await install.drainer.turn()
    assert install.status.state == "recording"


async def test_batches_are_bounded_and_span_segments(install: Install) -> None:
    for number in range(30):
        write_segment(install.spool, number, *(make_run(number * 10 + line).line() for line in range(10)))
    await install.drain()
    assert [len(batch) for batch in install.sink.batches] == [BATCH_LINES] * 3
    assert install.sink.ids == [run_id(number) for number in range(300)]


async def test_garbage_is_set_aside_and_the_rest_is_recorded(install: Install) -> None:
    foreign = orjson.dumps(orjson.loads(make_run(7).line()) | {"version": 99}) + b"\n"
    nameless = make_run(8)
    nameless.id = type(nameless.id)("../../etc")
    garbage = [b"\n", b"{]\n", b"\x00\xff\n", b"[]\n", b'{"kind":"run"}\n', foreign, nameless.line()]
    torn = make_run(9).line()[:-20]
    write_segment(install.spool, 1, make_run(1).line(), *garbage, make_run(2).line(), torn)
    await install.drain()
    assert install.sink.ids == [run_id(1), run_id(2)]
    assert install.left == [SET_ASIDE_FILE]
    aside = install.set_aside()
    assert len(aside) == len(garbage) + 1
    assert "version 99" in str(aside[5]["reason"])
    assert aside[-1]["line"] == torn.decode()
    assert (install.status.recorded, install.status.set_aside) == (2, len(garbage) + 1)


async def test_a_segment_of_nothing_but_garbage_asks_no_writer(install: Install) -> None:
    write_segment(install.spool, 1, b"x\n")
    await install.drain()
    assert install.sink.calls == 0
    assert install.left == [SET_ASIDE_FILE]


async def test_a_request_nested_too_deeply_costs_the_payload_not_the_run(install: Install) -> None:
    run = make_run(1, "failed")
    run.payload = Payload(orjson.Fragment(b'{"a":' * 600 + b"1" + b"}" * 600))
    write_segment(install.spool, 1, run.line(), make_run(2).line())
    await install.drain()
    assert install.sink.ids == [run_id(1), run_id(2)]
    assert "nested too deeply" in str(install.sink.runs[0].parameter["$gone"])


async def test_a_number_of_more_than_64_bits_is_read_as_the_front_read_it(install: Install) -> None:
    run = make_run(1)
    run.payload = Payload(
        orjson.Fragment(b'{"model": "m", "seed": 123456789012345678901234567890, "a": [18446744073709551616]}')
    )
    write_segment(install.spool, 1, run.line(), make_run(2).line())
    await install.drain()
    assert install.sink.runs[0].parameter == {
        "model": "m",
        "seed": 123456789012345678901234567890.0,
        "a": [2.0**64],
    }
    assert install.sink.ids == [run_id(1), run_id(2)]


async def test_a_line_that_cannot_be_prepared_holds_up_the_others_for_a_while_only(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(install.spool, 1, make_run(1, "failed", {"a": 1}).line(), make_run(2).line())
    keep = PayloadKeeper.keep

    def mistaken(keeper: PayloadKeeper, run: RunRecord, *, readable: bool = True) -> Recorded:
        if run.id == run_id(1):
            raise KeyError("a mistake of ours")
        return keep(keeper, run, readable=readable)

    monkeypatch.setattr(PayloadKeeper, "keep", mistaken)
    for _ in range(PATIENCE):
        await install.drainer.turn()
    assert install.sink.ids == []
    await install.drain()
    assert install.sink.ids == [run_id(2)]
    assert [entry["reason"] for entry in install.set_aside()] == ["KeyError"]
    assert install.left == [SET_ASIDE_FILE]


async def test_lines_that_the_writer_refuses_are_found_by_halving(install: Install) -> None:
    bad = {run_id(3), run_id(61)}
    install.sink.poison = {run: RowsRefused("no such column") for run in bad}
    write_segment(install.spool, 1, *(make_run(number).line() for number in range(80)))
    await install.drain()
    assert sorted(install.sink.ids) == sorted({run_id(number) for number in range(80)} - bad)
    assert [entry["reason"] for entry in install.set_aside()] == ["no such column"] * 2
    assert install.sink.calls < 40
    assert (install.status.recorded, install.status.set_aside) == (78, 2)


@pytest.mark.parametrize("trouble", [NotReady("the database is locked"), OSError(28, "No space left"), TimeoutError()])
async def test_while_the_database_is_away_everything_waits(install: Install, trouble: Exception) -> None:
    install.sink.trouble = trouble
    path = write_segment(install.spool, 1, make_run(1).line())
    pauses = [await install.drainer.turn() for _ in range(PATIENCE * 3)]
    assert pauses[:3] == [0.25, 0.5, 1.0]
    assert pauses[-1] == max(pauses) == LONGEST_PAUSE_S
    assert path.exists()
    assert install.left == [path.name]
    assert (install.status.state, install.status.waiting_segments) == ("waiting", 1)
    assert install.status.oldest_waiting_s > 0
    install.sink.trouble = None
    await install.drain()
    assert install.sink.ids == [run_id(1)]
    assert (install.status.state, install.status.reason) == ("recording", "")


async def test_an_outage_is_logged_once(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    write_segment(install.spool, 1, make_run(1).line())
    install.sink.trouble = NotReady("the database is locked")
    for _ in range(20):
        await install.drainer.turn()
    install.sink.trouble = None
    await install.drain()
    assert [record.getMessage() for record in caplog.records] == [
        "runs cannot be recorded now and wait in the spool: the database is locked",
        "recording again",
    ]


async def test_an_unknown_schema_is_shown_as_that(install: Install) -> None:
    install.sink.trouble = SchemaUnknown("Prefect 4.0 is installed; 3.9.1 is needed")
    write_segment(install.spool, 1, make_run(1).line())
    await install.drainer.turn()
    assert (install.status.state, install.status.reason) == ("mismatch", "Prefect 4.0 is installed; 3.9.1 is needed")
    assert len(install.left) == 1


async def test_an_unknown_error_is_held_against_a_line_only_if_others_go(install: Install) -> None:
    """A writer that fails for every line is broken itself: nothing is set aside, however long it lasts."""
    install.sink.poison = {run_id(number): KeyError("x") for number in range(3)}
    write_segment(install.spool, 1, *(make_run(number).line() for number in range(3)))
    for _ in range(PATIENCE + 3):
        await install.drainer.turn()
    assert install.sink.ids == []
    assert "KeyError" in install.status.reason
    write_segment(install.spool, 2, make_run(3).line())
    await install.drain()
    assert install.sink.ids == [run_id(3)]
    assert [entry["reason"] for entry in install.set_aside()] == ["KeyError"] * 3


async def test_a_new_drainer_repeats_what_was_not_deleted(install: Install) -> None:
    write_segment(install.spool, 1, *(make_run(number).line() for number in range(BATCH_LINES + 5)))
    await install.drainer.turn()
    install.drainer = install.another()
    await install.drain()
    assert install.sink.ids[:BATCH_LINES] == install.sink.ids[BATCH_LINES : 2 * BATCH_LINES]
    assert set(install.sink.ids) == {run_id(number) for number in range(BATCH_LINES + 5)}
    assert install.left == []


async def test_a_huge_line_is_recorded_with_its_request_in_a_blob(install: Install) -> None:
    request: dict[str, Json] = {"model": "m", "image": "x" * (30 << 20)}
    write_segment(install.spool, 1, make_run(1, "failed", request).line(), make_run(2).line())
    await install.drain()
    large, _ = install.sink.runs
    ref = large.parameter["$blob"]
    assert isinstance(ref, str)
    assert orjson.loads(Blobs(install.home / "payloads").get(ref)) == request


async def test_a_full_disk_is_waited_for(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    install = Install(small_disk)
    run = make_run(1, "failed", {"x": "y" * 200_000})
    write_segment(install.spool, 1, run.line(), make_run(2).line())
    filler = small_disk / "filler"
    with contextlib.suppress(OSError):
        filler.write_bytes(bytes(1 << 20))
    for _ in range(5):
        await install.drainer.turn()
    assert install.sink.ids == []
    assert len([record for record in caplog.records if "cannot be recorded now" in record.getMessage()]) == 1
    filler.unlink()
    await install.drain()
    assert install.sink.ids == [run_id(1), run_id(2)]
    assert install.status.state == "recording"


async def test_it_runs_until_it_is_cancelled_and_says_so(install: Install) -> None:
    task = asyncio.create_task(install.drainer.run_forever())
    write_segment(install.spool, 1, make_run(1).line())
    async with asyncio.timeout(10):
        while install.left:
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (install.status.state, install.status.recorded) == ("off", 1)
