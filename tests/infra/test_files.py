"""Files change whole or not at all; a full disk is a sentence."""

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from infra.errors import DiskFull
from infra.files import full_disk_named, make_private_folder, require_space, sha256_of, write_atomic
from tests.infra.disks import small_disk

__all__ = ["small_disk"]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o777])
def test_a_written_file_is_private_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        write_atomic(tmp_path / "secret", b"one")
    finally:
        os.umask(old)
    assert (tmp_path / "secret").read_bytes() == b"one"
    assert mode_of(tmp_path / "secret") == 0o600


def test_a_file_is_replaced_whole_and_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"untouched")
    link = tmp_path / "link"
    link.symlink_to(outside)
    write_atomic(link, b"new", mode=0o640)
    assert outside.read_bytes() == b"untouched"
    assert not link.is_symlink()
    assert (link.read_bytes(), mode_of(link)) == (b"new", 0o640)
    assert sorted(os.listdir(tmp_path)) == ["link", "outside"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(small_disk: Path) -> None:
    target = small_disk / "state"
    write_atomic(target, b"old")
    with pytest.raises(DiskFull, match=r"state could not be written.*\d+ bytes are free there"):
        write_atomic(target, b"x" * (2 << 20))
    assert target.read_bytes() == b"old"
    assert os.listdir(small_disk) == ["state"]


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path / "folder", b"x")
    assert os.listdir(tmp_path) == ["folder"]


def test_only_a_full_disk_is_renamed(tmp_path: Path) -> None:
    with pytest.raises(DiskFull), full_disk_named(tmp_path / "x"):
        raise OSError(errno.EDQUOT, "quota")
    with pytest.raises(PermissionError), full_disk_named(tmp_path / "x"):
        raise PermissionError(errno.EACCES, "no")


def test_new_folders_are_private_and_old_ones_keep_their_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    assert make_private_folder(shared / "a" / "b") == shared / "a" / "b"
    assert (mode_of(shared), mode_of(shared / "a"), mode_of(shared / "a" / "b")) == (0o755, 0o700, 0o700)
    make_private_folder(shared / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_private_folder(tmp_path / "file")


def test_a_digest_is_of_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc" * 1_000_000)
    expected = subprocess.run(["sha256sum", str(tmp_path / "x")], capture_output=True, check=True, text=True).stdout
    assert sha256_of(tmp_path / "x") == expected.split()[0]


def test_space_is_asked_for_before_it_is_used(small_disk: Path) -> None:
    require_space(small_disk / "not" / "there" / "yet", 1 << 19)
    with pytest.raises(DiskFull, match=r"2097152 bytes are needed in .* 1048576 bytes are free"):
        require_space(small_disk, 2 << 20)
    with pytest.raises(DiskFull, match="900000 are to stay free"):
        require_space(small_disk, 1 << 19, reserve_bytes=900_000)


def test_without_waiting_for_the_disk_a_file_is_replaced_whole_all_the_same(small_disk: Path) -> None:
    path = small_disk / "file"
    write_atomic(path, b"one", durable=False)
    with pytest.raises(DiskFull):
        write_atomic(path, bytes(2 << 20), durable=False)
    assert path.read_bytes() == b"one"
    assert mode_of(path) == 0o600
    assert list(small_disk.iterdir()) == [path]
