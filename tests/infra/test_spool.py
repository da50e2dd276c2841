"""The spool keeps runs over crashes, bounds its space and never refuses."""

import contextlib
import errno
import os
import time
from pathlib import Path

import orjson
import pytest

from infra.records import Boot, RunRecord, StepRecord, read_line
from infra.spool import MANY, Spool
from infra.types import KeyName, ModelName, RunId
from tests.infra.disks import small_disk

__all__ = ["small_disk"]


def make_run(number: int = 0) -> RunRecord:
    step = StepRecord("generate", "generate", (), "completed")
    return RunRecord(RunId(f"run-{number}"), "chat", ModelName("m"), KeyName("k"), 1.0, [step])


def lines(directory: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for path in sorted(directory.glob("*.seg")) for line in path.read_bytes().splitlines()]


def test_runs_are_on_disk_before_append_returns(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    spool.append(make_run(1))
    (open_segment,) = tmp_path.glob("*.open")
    assert orjson.loads(open_segment.read_bytes())["id"] == "run-1"
    assert open_segment.stat().st_mode & 0o777 == 0o600


def test_a_full_segment_is_closed(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=300)
    for number in range(5):
        spool.append(make_run(number))
    spool.close()
    assert [run["id"] for run in lines(tmp_path)] == [f"run-{number}" for number in range(5)]
    assert len(list(tmp_path.glob("*.seg"))) > 1


def test_a_torn_last_line_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "1.open").write_bytes(make_run(1).line() + b'{"id":"half')
    Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    assert [run["id"] for run in lines(tmp_path)] == ["run-1"]
    assert (tmp_path / "1.torn").read_bytes() == b'{"id":"half'


def test_over_the_limit_detail_goes_first_then_runs_then_space_returns(tmp_path: Path) -> None:
    line_bytes = len(make_run(1).line())
    limit_bytes = line_bytes * 10
    spool = Spool(tmp_path, max_bytes=limit_bytes, segment_bytes=line_bytes)
    for number in range(20):
        spool.append(make_run(number % 10))
    kept = lines(tmp_path)
    assert spool.dropped_details >= 1
    assert spool.dropped_runs == 20 - 10 - spool.dropped_details
    assert [run["steps"] == [] for run in kept] == [False] * 10 + [True] * spool.dropped_details
    for path in tmp_path.glob("*.seg"):
        path.unlink()
    spool.append(make_run(99))
    assert [run["id"] for run in lines(tmp_path)] == ["run-99"]


def test_a_full_disk_is_counted_and_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    spool.append(make_run(1))
    with monkeypatch.context() as patch:

        def no_space(_descriptor: int, _data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "write", no_space)
        spool.append(make_run(2))
    real_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:5]))
        spool.append(make_run(3))
    assert spool.dropped_runs == 2
    spool.append(make_run(4))
    spool.close()
    assert [run["id"] for run in lines(tmp_path)] == ["run-1", "run-4"]


def test_a_life_begins_with_its_boot_and_a_closed_segment_is_followed_by_another(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    spool.begin(Boot("b", 1.0))
    spool.close()
    spool.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".seg"]
    spool.append(make_run(1))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".open", ".seg"]
    first = min(tmp_path.iterdir())
    assert read_line(first.read_bytes()) == Boot("b", 1.0)


def test_a_segment_that_vanished_costs_its_runs_and_nothing_else(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    spool.append(make_run(1))
    next(tmp_path.glob("*.open")).unlink()
    spool.close()
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)  # has the number of the segment's descriptor now
    spool.close()
    spool.append(make_run(2))
    spool.close()
    assert os.fstat(other).st_size == 0
    os.close(other)
    assert [run["id"] for run in lines(tmp_path)] == ["run-2"]
    assert spool.dropped_runs == 1


def test_a_folder_that_vanished_is_made_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=1 << 20, segment_bytes=1 << 20)
    (tmp_path / "spool").rmdir()
    spool.append(make_run(1))
    spool.close()
    assert [run["id"] for run in lines(tmp_path / "spool")] == ["run-1"]
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EACCES, errno.ENOSPC])
def test_whatever_the_system_refuses_is_counted_and_not_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    with monkeypatch.context() as patch:

        def refuse(*_arguments: object) -> int:
            raise OSError(code, os.strerror(code))

        patch.setattr(os, "open", refuse)
        spool.append(make_run(1))
    assert spool.dropped_runs == 1
    spool.append(make_run(2))
    spool.close()
    assert [run["id"] for run in lines(tmp_path)] == ["run-2"]


def test_a_boot_that_found_no_space_is_written_before_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    with monkeypatch.context() as patch:

        def no_space(_descriptor: int, _data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "write", no_space)
        spool.begin(Boot("b", 1.0))
        spool.roll()
    spool.append(make_run(1))
    spool.close()
    assert [line["kind"] for line in lines(tmp_path)] == ["boot", "run"]
    assert spool.dropped_runs == 0


def test_a_torn_line_that_cannot_be_taken_back_ends_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    spool.append(make_run(1))
    real_write = os.write
    with monkeypatch.context() as patch:

        def broken(_descriptor: int, _length: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:5]))
        patch.setattr(os, "ftruncate", broken)
        spool.append(make_run(2))
    spool.append(make_run(3))
    spool.close()
    first, second = sorted(tmp_path.glob("*.seg"))
    assert first.read_bytes() == make_run(1).line() + make_run(2).line()[:5]
    assert second.read_bytes() == make_run(3).line()


def test_the_order_of_segments_is_that_of_their_writing_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [10**18]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1)
    for number, then in enumerate((10**18, 10**18, 10**17)):  # it stands, then it is set back
        now[0] = then
        spool.append(make_run(number))
    Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1).append(make_run(3))
    names = sorted((path.name for path in tmp_path.iterdir()), key=lambda name: (len(name), name))
    assert [orjson.loads((tmp_path / name).read_bytes())["id"] for name in names] == [f"run-{n}" for n in range(4)]


def test_a_drainer_that_deletes_while_the_space_is_measured_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1.seg").write_bytes(make_run(1).line())
    (tmp_path / "2.seg").write_bytes(make_run(2).line())
    real_stat = Path.stat

    def drained(path: Path, **how: bool) -> os.stat_result:
        if path.name == "1.seg":
            path.unlink(missing_ok=True)
        return real_stat(path, **how)

    monkeypatch.setattr(Path, "stat", drained)
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    assert spool.used_bytes == len(make_run(2).line())


def test_space_that_a_drainer_freed_is_seen_at_the_next_look(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    spool.append(make_run(1))
    spool.roll()
    assert spool.used_bytes == len(make_run(1).line())
    next(tmp_path.glob("*.seg")).unlink()
    spool.roll()
    assert spool.used_bytes == 0


def test_where_nobody_reads_segments_are_few_and_full(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=1 << 20)
    for number in range(200):
        spool.append(make_run(number))
        spool.roll()
    assert len(list(tmp_path.iterdir())) <= MANY + 1
    assert len(lines(tmp_path)) == MANY
    spool.close()
    assert len(lines(tmp_path)) == 200


def test_a_full_disk_at_the_start_leaves_the_torn_line_to_the_reader(small_disk: Path) -> None:
    (small_disk / "1.open").write_bytes(make_run(1).line() + b'{"id":"half')
    with (small_disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(512)):
            pass
    Spool(small_disk, max_bytes=1 << 20, segment_bytes=1 << 20)
    assert (small_disk / "1.seg").read_bytes() == make_run(1).line() + b'{"id":"half'
