"""What cannot be recorded is put where a person can look at it, within bounds."""

import stat
from pathlib import Path

import orjson
import pytest

from infra.prefect_child.segments import Line
from infra.prefect_child.set_aside import LINE_BYTES, MAX_BYTES, Refused, SetAside
from infra.recorder_status import SET_ASIDE_FILE
from tests.infra.disks import small_disk

__all__ = ["small_disk"]


def entries(directory: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in (directory / SET_ASIDE_FILE).read_bytes().splitlines()]


def test_a_line_is_there_with_its_reason_for_the_owner_alone(tmp_path: Path) -> None:
    SetAside(tmp_path).add([Refused(Line(b'{"torn": \xff\x00"', "1.seg"), "not a record")])
    SetAside(tmp_path).add([Refused(Line(b"x", "2.seg", oversized=True), "too long")])
    first, second = entries(tmp_path)
    assert (first["segment"], first["reason"], first["cut_off"]) == ("1.seg", "not a record", False)
    assert first["line"] == '{"torn": \\xff\x00"'
    assert second["cut_off"] is True
    assert stat.S_IMODE((tmp_path / SET_ASIDE_FILE).stat().st_mode) == 0o600


def test_nothing_makes_no_file(tmp_path: Path) -> None:
    SetAside(tmp_path).add([])
    assert list(tmp_path.iterdir()) == []


def test_lines_and_file_are_bounded_and_what_is_lost_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    aside = SetAside(tmp_path)
    for _ in range(6):
        aside.add([Refused(Line(b"x" * (4 * LINE_BYTES), "1.seg"), "no")] * 4)
    assert MAX_BYTES - 2 * LINE_BYTES < (tmp_path / SET_ASIDE_FILE).stat().st_size <= MAX_BYTES
    assert {len(str(entry["line"])) for entry in entries(tmp_path)} == {LINE_BYTES}
    lost = [int(record.getMessage().split()[0]) for record in caplog.records if "are lost" in record.getMessage()]
    assert sum(lost) == 24 - len(entries(tmp_path))


def test_a_copy_that_cannot_be_made_is_logged(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    (small_disk / "filler").write_bytes(bytes(1 << 20))
    SetAside(small_disk).add([Refused(Line(b"x" * 5000, "1.seg"), "no")])
    assert "could not be copied" in caplog.text


def test_a_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "outside").write_bytes(b"")
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / SET_ASIDE_FILE).symlink_to(tmp_path / "outside")
    SetAside(spool).add([Refused(Line(b"x", "1.seg"), "no")])
    assert (tmp_path / "outside").read_bytes() == b""
    assert "could not be copied" in caplog.text
