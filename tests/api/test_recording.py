"""What a front writes down of its runs, by whose requests are kept."""

from pathlib import Path

import pytest

from api.active import ActiveRuns
from api.recording import INLINE_BYTES, Payloads, Recording
from flows.chat import plan_chat
from flows.plan import Plan
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
    bench.recording.look()
    bench.recording.look()
    bench.active.leave(active)
    recorder.close(None, None)
    bench.recording.ended(recorder)
    boot, running, ended = bench.lines()
    assert isinstance(boot, Boot)
    assert isinstance(running, RunRecord)
    assert isinstance(ended, RunRecord)
    assert (running.status, running.boot, ended.status) == ("running", boot.boot, "completed")
    assert running.payload is not None
