"""Blobs are named by their content, private, whole or absent, and go by age and size."""

import hashlib
import os
import stat
import time
from pathlib import Path

import pytest

from infra.blobs import Blobs, is_ref
from infra.errors import DiskFull, NotFound
from tests.infra.disks import small_disk

__all__ = ["small_disk"]


def file_of(root: Path, ref: str) -> Path:
    digits = ref.removeprefix("sha256:")
    return root / digits[:2] / digits[2:]


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_what_was_put_comes_back_under_its_hash_and_is_private(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "payloads")
    ref = blobs.put(b"\x00secret")
    assert ref == "sha256:" + hashlib.sha256(b"\x00secret").hexdigest()
    assert is_ref(ref)
    assert blobs.get(ref) == b"\x00secret"
    file = file_of(blobs.root, ref)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (blobs.root, file.parent)} == {0o700}
    assert Blobs(blobs.root).get(ref) == b"\x00secret"


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "sha256:",
        "sha256:../../etc/passwd",
        "sha256:" + "a" * 63,
        "sha256:" + "A" * 64,
        "sha256:" + "a" * 64 + "\n",
        "sha256:" + "١" * 64,
        "md5:" + "a" * 64,
        "/etc/passwd",
        "sha256:" + "a" * 64,  # well formed, but not here
    ],
)
def test_no_other_reference_reaches_the_disk(tmp_path: Path, ref: str) -> None:
    with pytest.raises(NotFound):
        Blobs(tmp_path).get(ref)


def test_a_damaged_blob_is_not_found_and_is_mended_by_the_next_put(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    ref = blobs.put(b"0123456789")
    for damage in (b"", b"01234", b"0123456780"):
        file_of(tmp_path, ref).write_bytes(damage)
        with pytest.raises(NotFound, match="damaged"):
            blobs.get(ref)
        assert blobs.put(b"0123456789") == ref
        assert blobs.get(ref) == b"0123456789"


def test_a_link_in_place_of_a_blob_is_not_followed(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    (tmp_path / "outside").write_bytes(b"content")
    ref = "sha256:" + hashlib.sha256(b"content").hexdigest()
    file_of(blobs.root, ref).parent.mkdir()
    file_of(blobs.root, ref).symlink_to(tmp_path / "outside")
    with pytest.raises(NotFound):
        blobs.get(ref)
    assert blobs.put(b"content") == ref
    assert not file_of(blobs.root, ref).is_symlink()


def test_old_blobs_go_and_putting_one_again_makes_it_new(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    old, renewed, new = blobs.put(b"old"), blobs.put(b"renewed"), blobs.put(b"new")
    for ref in (old, renewed):
        age(file_of(tmp_path, ref), 100)
    blobs.put(b"renewed")
    assert blobs.prune(50) == 1
    with pytest.raises(NotFound, match="not kept"):
        blobs.get(old)
    assert (blobs.get(renewed), blobs.get(new)) == (b"renewed", b"new")


def test_over_the_size_the_oldest_go(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    refs = [blobs.put(bytes([number]) * 100) for number in range(5)]
    for number, ref in enumerate(refs):
        age(file_of(tmp_path, ref), 50 - number)
    assert blobs.prune(1000, max_bytes=250) == 3
    assert [file_of(tmp_path, ref).exists() for ref in refs] == [False, False, False, True, True]


def test_pruning_spares_what_is_being_written_and_what_is_not_ours(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    shard = file_of(tmp_path, blobs.put(b"x")).parent
    writing, left = shard / ".abc.0.tmp", shard / ".abc.1.tmp"
    for path in (writing, left, tmp_path / "README"):
        path.write_bytes(b"half")
    age(left, 4000)
    age(tmp_path / "README", 4000)
    assert blobs.prune(3000) == 1
    assert (writing.exists(), left.exists(), (tmp_path / "README").exists()) == (True, False, True)


def test_a_full_disk_leaves_nothing_behind(small_disk: Path) -> None:
    blobs = Blobs(small_disk)
    kept = blobs.put(b"kept")
    with pytest.raises(DiskFull):
        blobs.put(os.urandom(2 << 20))
    assert blobs.get(kept) == b"kept"
    assert [path for path in small_disk.rglob("*") if path.is_file()] == [file_of(small_disk, kept)]


def test_a_program_gets_the_file_itself(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    assert blobs.find(blobs.put(b"adapter")).read_bytes() == b"adapter"
    for ref in ("sha256:" + "0" * 64, "sha256:../../etc/passwd"):
        with pytest.raises(NotFound):
            blobs.find(ref)
