"""The files with what responses in the background tell."""

import stat
from pathlib import Path

import pytest

from infra import response_events
from infra.errors import InvalidRequest
from infra.response_events import FOLDER, ResponseEvents
from infra.types import ResponseId
from tests.infra.disks import small_disk as small_disk

ONE = ResponseId("resp_1")


@pytest.fixture
def events(tmp_path: Path) -> ResponseEvents:
    return ResponseEvents(tmp_path)


def test_what_is_appended_is_read_from_anywhere(events: ResponseEvents, tmp_path: Path) -> None:
    assert (events.read(ONE, 0).file, events.known()) == (None, [])
    writer = events.write(ONE)
    assert writer.append(b"one\n")
    assert writer.append(b"two\nthree\n")
    found = events.read(ONE, 4)
    assert (found.data, found.more, found.closed) == (b"two\nthree\n", False, False)
    assert writer.size_bytes == 14
    assert (writer.content(), events.known()) == (b"one\ntwo\nthree\n", [ONE])
    path = tmp_path / FOLDER / ONE
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    writer.close(over=False)


def test_only_whole_lines_are_read(events: ResponseEvents) -> None:
    writer = events.write(ONE)
    writer.append(b"one\ntw")
    assert events.read(ONE, 0)[:2] == (b"one\n", True)
    assert events.read(ONE, 4)[:2] == (b"", False)
    writer.append(b"o\n")
    assert events.read(ONE, 4)[:2] == (b"two\n", False)
    writer.close(over=False)


def test_much_is_read_little_by_little_and_a_long_line_at_once(
    events: ResponseEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_events, "READ_BYTES", 10)
    writer = events.write(ONE)
    writer.append(b"one\ntwo\nthree\n" + b"x" * 100 + b"\n")
    assert events.read(ONE, 0)[:2] == (b"one\ntwo\n", True)
    assert events.read(ONE, 8)[:2] == (b"three\n", True)
    assert events.read(ONE, 14)[:2] == (b"x" * 100 + b"\n", False)
    writer.close(over=False)


def test_one_that_is_closed_takes_no_more(events: ResponseEvents) -> None:
    writer = events.write(ONE)
    writer.append(b"one\n")
    events.close(ONE)
    assert not writer.append(b"two\n")
    assert events.read(ONE, 0)[:3] == (b"one\n", False, True)
    writer.close(over=True)
    events.close(ResponseId("nobody"))


def test_another_try_goes_on_in_the_same_file_unless_it_was_closed(events: ResponseEvents) -> None:
    first = events.write(ONE)
    first.append(b"one\ntor")
    first.close(over=False)
    second = events.write(ONE)
    assert second.content() == b"one\ntor"
    second.cut(4)
    assert second.append(b"two\n")
    before = events.read(ONE, 0)
    assert (before.data, before.closed) == (b"one\ntwo\n", False)
    second.close(over=True)
    assert events.read(ONE, 0).closed
    third = events.write(ONE)
    assert third.content() == b""
    assert events.read(ONE, 0).file != before.file
    third.close(over=True)


def test_two_do_not_write_at_once(events: ResponseEvents) -> None:
    """The process of the first one hung, and was taken for dead."""
    first, second = events.write(ONE), events.write(ONE)
    assert second.append(b"second\n")
    assert not first.append(b"first\n")
    assert second.append(b"second\n")
    assert events.read(ONE, 0).data == b"second\nsecond\n"
    for writer in (first, second):
        writer.close(over=True)


def test_a_closed_writer_writes_into_no_other_file(events: ResponseEvents) -> None:
    writer = events.write(ONE)
    writer.close(over=False)
    other = events.write(ResponseId("resp_2"))
    assert not writer.append(b"one\n")
    writer.close(over=True)
    assert (other.content(), events.read(ONE, 0).closed) == (b"", False)
    other.close(over=True)


def test_there_is_an_end_to_it(events: ResponseEvents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_events, "MOST_BYTES", 10)
    writer = events.write(ONE)
    assert writer.append(b"one\n")
    assert not writer.append(b"two and more\n")
    assert not writer.append(b"2\n"), "what comes later must not stand before what is missing"
    assert events.read(ONE, 0).data == b"one\n"


def test_a_full_disk_takes_lines_whole_or_not_at_all(small_disk: Path) -> None:
    events = ResponseEvents(small_disk)
    writer = events.write(ONE)
    assert writer.append(b"one\n")
    (small_disk / "ballast").write_bytes(b"x" * 900_000)
    assert not writer.append(b"x" * 400_000 + b"\n")
    assert events.read(ONE, 0).data == b"one\n"
    events.close(ONE)
    assert events.read(ONE, 0).closed


def test_what_is_forgotten_is_not_made_again_by_its_writer(events: ResponseEvents) -> None:
    writer = events.write(ONE)
    writer.append(b"one\n")
    events.forget(ONE)
    events.forget(ONE)
    writer.append(b"two\n")
    writer.close(over=True)
    assert (events.read(ONE, 0).file, events.known()) == (None, [])


def test_an_id_that_is_a_path(events: ResponseEvents) -> None:
    with pytest.raises(InvalidRequest):
        events.read(ResponseId("../coderai.db"), 0)
