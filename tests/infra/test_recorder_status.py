"""The recorder's status: seldom written, always whole, never in the way."""

import contextlib
import json
import os
import stat
import time
from pathlib import Path

import pytest

from infra.recorder_status import RecorderStatus, StatusFile, read_status
from tests.infra.disks import small_disk

__all__ = ["small_disk"]

FILE = Path("run", "recorder.json")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_was_said_can_be_read(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    said = RecorderStatus(state="waiting", reason="locked", recorded=7, waiting_segments=2, oldest_waiting_s=1.5)
    StatusFile(tmp_path).say(said)
    status = read_status(tmp_path)
    assert status is not None
    assert status.model_copy(update={"pid": 0, "written_at": 0.0}) == said
    assert status.pid == os.getpid()
    assert 0 <= status.silent_s() < 60
    assert abs(status.written_at - time.time()) < 60
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_it_is_written_when_it_changed_at_most_each_second_and_as_a_sign_of_life(tmp_path: Path) -> None:
    clock = Clock()
    file = StatusFile(tmp_path, clock)
    written = []
    for now_s, recorded in ((0, 1), (0.5, 2), (1.0, 2), (2.5, 2), (15.9, 2), (16.0, 2), (16.5, 3), (17.0, 3)):
        (tmp_path / FILE).unlink(missing_ok=True)
        clock.now_s = now_s
        file.say(RecorderStatus(state="recording", recorded=recorded))
        if (tmp_path / FILE).exists():
            written.append(now_s)
    assert written == [0, 1.0, 16.0, 17.0]
    file.say(RecorderStatus(state="off"), now=True)
    status = read_status(tmp_path)
    assert status is not None
    assert status.state == "off"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "dancing"}', '{"recorded": 1}'])
def test_what_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(text)
    assert read_status(tmp_path) is None


def test_a_newer_recorder_may_say_more(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(json.dumps({"state": "off", "mood": "fine"}))
    assert read_status(tmp_path) == RecorderStatus(state="off")


def test_a_full_disk_is_logged_once_and_passes(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = StatusFile(small_disk)
    file.say(RecorderStatus(state="starting"), now=True)
    filler = small_disk / "filler"
    with contextlib.suppress(OSError):
        filler.write_bytes(bytes(2 << 20))
    for _ in range(3):
        file.say(RecorderStatus(state="recording"), now=True)
    assert len(caplog.records) == 1
    filler.unlink()
    file.say(RecorderStatus(state="recording"), now=True)
    status = read_status(small_disk)
    assert status is not None
    assert status.state == "recording"
