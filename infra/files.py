"""Files that change whole or not at all, in folders that only their owner can read."""

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.errors import DiskFull

CHUNK_BYTES = 1 << 20
"""How much of a large file is in memory at once."""
_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def full_disk_named(what: Path) -> Iterator[None]:
    """Turn the system's "no space left" and "quota exceeded" into a sentence about `what`.

    Raises:
        DiskFull: in place of such an OSError; every other error passes through.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DiskFull(
            f"{what} could not be written: {error.strerror}; {_free_words(what.parent)}. Make room and try again"
        ) from error


def make_private_folder(folder: Path) -> Path:
    """Create `folder`, and what is missing above it, with mode 0700. A folder that exists keeps its mode.

    Raises:
        DiskFull: no room for the entry.
        NotADirectoryError: something else has the name.
    """
    with full_disk_named(folder):
        missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        for one in reversed(missing):
            one.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "a folder is needed here, not a file", str(folder))
    return folder


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace the content of `path` in one step: a reader, or a crash, sees the old content or the new.

    The file has `mode` from its first byte on, whatever the umask is. A symbolic link is replaced, not followed.
    Without `durable` nothing waits for the disk: the same holds over the death of this process, but a power cut may
    leave an empty or torn file, which the reader must be able to tell.

    Raises:
        DiskFull: no room; `path` is as it was, and nothing else is left.
    """
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.tmp")
    with full_disk_named(path):
        try:
            _write_new(temporary, data, mode, durable)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content as 64 hex digits, read `CHUNK_BYTES` at a time."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def require_space(folder: Path, needed_bytes: int, *, reserve_bytes: int = 0) -> None:
    """Make sure that `needed_bytes` fit into `folder`'s file system and leave `reserve_bytes` free.

    Raises:
        DiskFull: they do not; the message has both numbers.
    """
    free_bytes = shutil.disk_usage(_existing(folder)).free
    if free_bytes < needed_bytes + reserve_bytes:
        raise DiskFull(
            f"{needed_bytes} bytes are needed in {folder} and {reserve_bytes} are to stay free, "
            f"but {_free_words(folder)}. Make room and try again"
        )


def _write_new(path: Path, data: bytes, mode: int, durable: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _free_words(folder: Path) -> str:
    return f"{shutil.disk_usage(_existing(folder)).free} bytes are free there"


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
