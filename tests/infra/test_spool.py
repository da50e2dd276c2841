"""The spool keeps runs over crashes, bounds its space and never refuses."""

import errno
import os
from pathlib import Path

import orjson
import pytest

from infra.records import Boot, RunRecord, StepRecord, read_line
from infra.spool import Spool
from infra.types import KeyName, ModelName, RunId


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
    now = [0.0]
    line_bytes = len(make_run(1).line())
    limit_bytes = line_bytes * 10
    spool = Spool(tmp_path, max_bytes=limit_bytes, segment_bytes=line_bytes, clock=lambda: now[0])
    for number in range(20):
        spool.append(make_run(number % 10))
    kept = lines(tmp_path)
    assert spool.dropped_details >= 1
    assert spool.dropped_runs == 20 - 10 - spool.dropped_details
    assert [run["steps"] == [] for run in kept] == [False] * 10 + [True] * spool.dropped_details
    for path in tmp_path.glob("*.seg"):
        path.unlink()
    now[0] = 2.0
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
