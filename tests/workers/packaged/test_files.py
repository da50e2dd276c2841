"""Files that exist whole or not at all, and their seals."""

import errno
import hashlib
import os
import shutil
import threading
from pathlib import Path

import pytest

from infra.errors import DiskFull
from workers.packaged.files import Stopped, sealed, sha256_of, whole_file, write_seal


def test_the_file_appears_only_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model.gguf"
    with whole_file(target, 4) as temporary:
        temporary.write_bytes(b"GGUF")
        assert not target.exists()
        assert temporary.parent == target.parent
    assert target.read_bytes() == b"GGUF"
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.parent.stat().st_mode & 0o777 == 0o700
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_block_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    target.write_bytes(b"old")

    def half() -> None:
        with whole_file(target, 4) as temporary:
            temporary.write_bytes(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_is_seen_beforehand(tmp_path: Path) -> None:
    more = shutil.disk_usage(tmp_path).total + 1
    with pytest.raises(DiskFull, match="Make room"), whole_file(tmp_path / "model.gguf", more):
        pytest.fail("the block ran")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match=r"model\.gguf"), whole_file(tmp_path / "model.gguf", 4):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_seal_fits_only_the_file_it_was_made_for(tmp_path: Path) -> None:
    path, seal = tmp_path / "model.gguf", tmp_path / "model.seal.json"
    assert sealed(path, seal) is None
    path.write_bytes(b"weights")
    assert sealed(path, seal) is None
    write_seal(path, seal, "a" * 64, "source/1")
    found = sealed(path, seal)
    assert found is not None
    assert (found.sha256, found.made_from) == ("a" * 64, "source/1")
    os.utime(path, ns=(1, 1))
    assert sealed(path, seal) is None
    write_seal(path, seal, "a" * 64, "source/1")
    path.write_bytes(b"longer weights")
    assert sealed(path, seal) is None


def test_a_seal_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    path, seal = tmp_path / "model.gguf", tmp_path / "model.seal.json"
    path.write_bytes(b"weights")
    for text in ("", "{", '{"sha256": 1}', "[]"):
        seal.write_text(text)
        assert sealed(path, seal) is None


def test_hashing_reports_and_stops(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(9 << 20))
    steps: list[int] = []
    assert sha256_of(path, steps.append, threading.Event()) == hashlib.sha256(bytes(9 << 20)).hexdigest()
    assert steps == [4 << 20, 8 << 20, 9 << 20]
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        sha256_of(path, steps.append, stop)
