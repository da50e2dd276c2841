"""Segments are read oldest first, in bounded bites, and go when they are committed."""

import os
import tracemalloc
from pathlib import Path

import pytest

from infra.prefect_child.segments import BATCH_BYTES, BATCH_LINES, Segments
from tests.infra.prefect_child.spooled import write_segment


def texts(segments: Segments) -> list[bytes]:
    """Read and commit one chunk."""
    segments.waiting()
    chunk = segments.read()
    segments.commit(chunk)
    return [line.text for line in chunk.lines]


def test_oldest_first_over_segments_and_only_closed_ones(tmp_path: Path) -> None:
    write_segment(tmp_path, 2, b"c\n", b"d\n")
    write_segment(tmp_path, 1, b"a\n", b"b\n")
    (tmp_path / "1.open").write_bytes(b"being written\n")
    (tmp_path / "9.torn").write_bytes(b"torn")
    (tmp_path / "0.seg").mkdir()
    os.mkfifo(tmp_path / "3.seg")
    segments = Segments(tmp_path)
    assert segments.waiting() == 2
    assert texts(segments) == [b"a", b"b", b"c", b"d"]
    assert segments.waiting() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.seg", "1.open", "3.seg", "9.torn"]


def test_nothing_is_deleted_before_its_commit(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 1, b"a\n")
    segments = Segments(tmp_path)
    for _ in range(2):
        segments.waiting()
        chunk = segments.read()
        assert [line.text for line in chunk.lines] == [b"a"]
        assert path.exists()
    segments.commit(chunk)
    assert not path.exists()


def test_a_segment_is_read_in_bites(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 1, *(b"%d\n" % number for number in range(BATCH_LINES + 7)))
    write_segment(tmp_path, 2, b"last\n")
    segments = Segments(tmp_path)
    assert texts(segments) == [b"%d" % number for number in range(BATCH_LINES)]
    assert path.exists()
    assert texts(segments) == [b"%d" % number for number in range(BATCH_LINES, BATCH_LINES + 7)] + [b"last"]
    assert segments.waiting() == 0


def test_a_new_reader_starts_the_segment_anew(tmp_path: Path) -> None:
    write_segment(tmp_path, 1, *(b"%d\n" % number for number in range(BATCH_LINES + 1)))
    assert len(texts(Segments(tmp_path))) == BATCH_LINES
    again = Segments(tmp_path)
    assert texts(again)[0] == b"0"
    assert texts(again) == [b"%d" % BATCH_LINES]


def test_empty_segments_and_torn_ends(tmp_path: Path) -> None:
    write_segment(tmp_path, 1)
    write_segment(tmp_path, 2, b"\n", b"whole\n", b"torn")
    segments = Segments(tmp_path)
    assert texts(segments) == [b"", b"whole", b"torn"]
    assert list(tmp_path.iterdir()) == []


def test_large_lines_are_read_few_at_a_time(tmp_path: Path) -> None:
    line = b"x" * (20 << 20) + b"\n"
    write_segment(tmp_path, 1, *[line] * 6)
    segments = Segments(tmp_path)
    tracemalloc.start()
    try:
        sizes = [len(text) for _ in range(6) for text in texts(segments)]
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sizes == [20 << 20] * 6
    assert peak_bytes < 5 * len(line)
    assert segments.waiting() == 0


def test_a_line_beyond_all_bounds_is_skipped_but_for_its_head(tmp_path: Path) -> None:
    write_segment(tmp_path, 1, b"before\n", b"y" * (3 * BATCH_BYTES) + b"\n", b"after\n")
    segments = Segments(tmp_path, line_bytes=1 << 20)
    segments.waiting()
    chunk = segments.read()
    assert [(len(line.text), line.oversized) for line in chunk.lines] == [(6, False), (4096, True), (5, False)]


def test_a_segment_that_vanished_is_no_error(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 1, b"a\n")
    write_segment(tmp_path, 2, b"b\n")
    segments = Segments(tmp_path)
    segments.waiting()
    path.unlink()
    chunk = segments.read()
    segments.commit(chunk)
    assert [line.text for line in chunk.lines] == [b"b"]
    assert segments.waiting() == 0


def test_a_segment_that_cannot_be_deleted_is_not_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_segment(tmp_path, 1, b"a\n")
    segments = Segments(tmp_path)
    segments.waiting()
    chunk = segments.read()

    def refuse(_self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(PermissionError):
            segments.commit(chunk)
    assert segments.waiting() == 1
    assert texts(segments) == []
    assert segments.waiting() == 0


def test_a_long_queue_is_listed_only_now_and_then(tmp_path: Path) -> None:
    now = [0.0]
    segments = Segments(tmp_path, clock=lambda: now[0])
    for number in range(100):
        write_segment(tmp_path, number, b"x\n")
    assert segments.waiting() == 100
    write_segment(tmp_path, 100, b"x\n")
    assert segments.waiting() == 100
    now[0] = 6.0
    assert segments.waiting() == 101
    assert segments.oldest_waiting_s() > 1000


def test_a_missing_directory_is_an_empty_one(tmp_path: Path) -> None:
    segments = Segments(tmp_path / "none")
    assert (segments.waiting(), segments.oldest_waiting_s(), segments.read().lines) == (0, 0.0, [])
