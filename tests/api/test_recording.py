"""What a front writes down of its runs, by whose requests are kept."""

import asyncio
from pathlib import Path

import pytest

from api.active import ActiveRun, ActiveRuns
from api.recording import INLINE_BYTES, Payloads, Recording
from flows.chat import plan_chat
from flows.plan import Plan
from flows.record import RunRecorder
from infra.blobs import Blobs
from infra.errors import EngineFailed
from infra.records import Boot, RunRecord, read_line
from infra.spool import Spool
from infra.types import KeyName, RunId
from tests.fakes import make_entry

RUN = RunId("8f6c1d2e-0000-4000-8000-000000000000")


class Bench:
    """A recording over a spool in a folder."""

    def __init__(self, folder: Path, payloads: Payloads) -> None:
        self.spool = Spool(folder / "spool", max_bytes=1 << 24, segment_bytes=1 << 24)
        self.blobs = Blobs(folder / "payloads")
        self.active = ActiveRuns(lambda: 1e12)
        self.recording = Recording(self.spool, self.active, payloads, self.blobs)

    def lines(self) -> list[Boot | RunRecord]:
        self.spool.close()
        segments = sorted(self.spool.directory.iterdir())
        return [read_line(line) for segment in segments for line in segment.read_bytes().splitlines()]

    async def run(self, request: bytes, error: BaseException | None = None) -> RunRecord:
        recorder = self.recording.recorder(RUN, plan(), KeyName("ann"), await self.recording.payload(request))
        recorder.close(error, None)
        self.recording.ended(recorder)
        (line,) = self.lines()
        assert isinstance(line, RunRecord)
        assert line.boot == self.recording.boot
        assert recorder.record.payload is None
        return line


def plan() -> Plan:
    return plan_chat({"messages": []}, make_entry(), None)


@pytest.mark.parametrize(
    ("payloads", "error", "kept"),
    [
        ("all", None, True),
        ("all", EngineFailed("x"), True),
        ("failed", None, False),
        ("failed", EngineFailed("x"), True),
        ("none", EngineFailed("x"), False),
    ],
)
async def test_whose_requests_are_kept(
    tmp_path: Path, payloads: Payloads, error: BaseException | None, kept: bool
) -> None:
    line = await Bench(tmp_path, payloads).run(b'{"model": "m"}', error)
    assert (line.payload is not None) is kept
    if line.payload is not None:
        assert line.payload.request == {"model": "m"}


async def test_a_large_request_goes_to_a_blob(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "all")
    request = b'{"model": "' + b"m" * INLINE_BYTES + b'"}'
    payload = (await bench.run(request)).payload
    assert payload is not None
    assert payload.request is None
    assert payload.blob is not None
    assert bench.blobs.get(payload.blob) == request


async def test_a_run_that_lasts_is_written_down_once_meanwhile(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "all")
    bench.recording.begin()
    recorder = bench.recording.recorder(RUN, plan(), KeyName("ann"), await bench.recording.payload(b"{}"))
    active = bench.active.enter(recorder.record)
    await bench.recording.look()
    await bench.recording.look()
    bench.active.leave(active)
    recorder.close(None, None)
    bench.recording.ended(recorder)
    boot, running, ended = bench.lines()
    assert isinstance(boot, Boot)
    assert isinstance(running, RunRecord)
    assert isinstance(ended, RunRecord)
    assert (running.status, running.boot, ended.status) == ("running", boot.boot, "completed")
    assert running.payload is not None


async def test_a_request_is_on_one_line_whatever_its_lines_and_its_depth_are(tmp_path: Path) -> None:
    deep = b'{"a":\n' * 300 + b"1" + b"}" * 300
    bench = Bench(tmp_path, "all")
    recorder = bench.recording.recorder(RUN, plan(), KeyName("ann"), await bench.recording.payload(deep))
    recorder.close(None, None)
    bench.recording.ended(recorder)
    bench.spool.close()
    (segment,) = bench.spool.directory.iterdir()
    (line,) = segment.read_bytes().splitlines()
    assert deep.replace(b"\n", b" ") in line


async def test_results_of_steps_are_kept_for_a_run_that_may_be_tried_again_alone(tmp_path: Path) -> None:
    for error in (None, EngineFailed("x")):
        bench = Bench(tmp_path / str(error), "all")
        payload = await bench.recording.payload(b"{}")
        assert payload is not None
        payload.steps["score"] = {"scores": [1.0]}
        recorder = bench.recording.recorder(RUN, plan(), KeyName("ann"), payload)
        recorder.close(error, None)
        bench.recording.ended(recorder)
        (line,) = bench.lines()
        assert isinstance(line, RunRecord)
        assert line.payload is not None
        assert line.payload.steps == ({} if error is None else {"score": {"scores": [1.0]}})


class Large:
    """A large request where those of failed runs alone are kept."""

    text = b'{"model": "' + b"m" * INLINE_BYTES + b'"}'

    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder, "failed")
        self.kept = folder / "payloads"

    async def begin(self) -> tuple[RunRecorder, ActiveRun]:
        recording = self.bench.recording
        recorder = recording.recorder(RUN, plan(), KeyName("ann"), await recording.payload(self.text))
        return recorder, self.bench.active.enter(recorder.record)

    def end(self, recorder: RunRecorder, active: ActiveRun, error: BaseException | None) -> None:
        self.bench.active.leave(active)
        recorder.close(error, None)
        self.bench.recording.ended(recorder)

    @property
    def files(self) -> int:
        return sum(path.is_file() for path in self.kept.rglob("*"))


@pytest.mark.parametrize("lasts", [False, True])
async def test_nothing_is_left_of_a_large_request_that_succeeded(tmp_path: Path, lasts: bool) -> None:
    large = Large(tmp_path)
    recorder, active = await large.begin()
    assert large.files == 0
    if lasts:
        await large.bench.recording.look()
        (running,) = large.bench.lines()
        assert isinstance(running, RunRecord)
        assert running.payload is not None
        assert running.payload.blob is not None
        assert large.bench.blobs.get(running.payload.blob) == large.text
    large.end(recorder, active, None)
    assert large.files == 0


@pytest.mark.parametrize("beforehand", [False, True])
async def test_a_large_request_that_failed_is_a_blob(tmp_path: Path, beforehand: bool) -> None:
    large = Large(tmp_path)
    recorder, active = await large.begin()
    if beforehand:
        await large.bench.recording.failing(recorder)
        assert large.files == 1
    large.end(recorder, active, EngineFailed("x"))
    (line,) = large.bench.lines()
    assert isinstance(line, RunRecord)
    assert line.payload is not None
    assert line.payload.blob is not None
    assert large.bench.blobs.get(line.payload.blob) == large.text


@pytest.mark.parametrize("mode", ["all", "failed"])
async def test_a_store_that_cannot_be_written_costs_the_request_s_copy_alone(tmp_path: Path, mode: Payloads) -> None:
    bench = Bench(tmp_path, mode)
    bench.blobs.root.rmdir()
    bench.blobs.root.write_bytes(b"")  # no folder: neither root nor anybody else can put a blob there
    line = await bench.run(Large.text, EngineFailed("x"))
    assert line.payload is None


async def test_a_run_that_ends_while_its_request_is_being_kept_is_not_shown_as_running(tmp_path: Path) -> None:
    large = Large(tmp_path)
    recorder, active = await large.begin()
    look = asyncio.create_task(large.bench.recording.look())
    await asyncio.sleep(0)
    large.end(recorder, active, None)
    await look
    (line,) = large.bench.lines()
    assert isinstance(line, RunRecord)
    assert line.status == "completed"
    assert large.files == 0
