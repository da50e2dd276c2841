"""Joining parts to one verified file."""

import hashlib
import threading
from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from workers.packaged.files import Pin, Stopped
from workers.packaged.parts import join_parts

PIECES = (b"GGUF" * 1000, b"x" * 5, b"tail")
WHOLE = b"".join(PIECES)
PIN = Pin(size_bytes=len(WHOLE), sha256=hashlib.sha256(WHOLE).hexdigest())


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "packages" / f"part{number}.bin" for number in range(len(PIECES))]
    paths[0].parent.mkdir()
    for path, piece in zip(paths, PIECES, strict=True):
        path.write_bytes(piece)
    return paths


def test_joins_in_order(tmp_path: Path, parts: list[Path]) -> None:
    steps: list[int] = []
    target = tmp_path / "models" / "m.gguf"
    join_parts(parts, target, PIN, steps.append, threading.Event())
    assert target.read_bytes() == WHOLE
    assert steps == [4000, 4005, 4009]
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("change", [b"tai1", b"tail and much more", b""])
def test_what_does_not_match_the_pin_never_appears(tmp_path: Path, parts: list[Path], change: bytes) -> None:
    parts[2].write_bytes(change)
    target = tmp_path / "models" / "m.gguf"
    with pytest.raises(InvalidRequest, match="join to"):
        join_parts(parts, target, PIN, lambda _: None, threading.Event())
    assert list(target.parent.iterdir()) == []


def test_a_missing_part_is_named_before_anything_is_written(tmp_path: Path, parts: list[Path]) -> None:
    parts[1].unlink()
    with pytest.raises(InvalidRequest, match=r"part1\.bin is missing"):
        join_parts(parts, tmp_path / "models" / "m.gguf", PIN, lambda _: None, threading.Event())
    assert not (tmp_path / "models").exists()


def test_stopping_leaves_nothing(tmp_path: Path, parts: list[Path]) -> None:
    stop = threading.Event()
    with pytest.raises(Stopped):
        join_parts(parts, tmp_path / "models" / "m.gguf", PIN, lambda _: stop.set(), stop)
    assert list((tmp_path / "models").iterdir()) == []
