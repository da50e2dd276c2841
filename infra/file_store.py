"""Large files on disk under the name of their own SHA-256, written as they come, whole or not at all.

`infra/blobs.py` is for what fits into memory and need not outlive a power cut; here nothing is ever in memory whole,
and what was given its name is on the disk. Everything blocks: call it in a thread.
"""

import fcntl
import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from infra.errors import NotFound, PayloadTooLarge
from infra.files import full_disk_named, make_private_folder, require_space, sync_folder

RESERVE_BYTES = 256 << 20
"""What an incoming file leaves free on the disk: the database and the spool lie there, too."""
_LOOK_BYTES = 64 << 20
"""How much is written between two looks at the free space."""
_REF = re.compile(r"sha256:(?P<shard>[0-9a-f]{2})(?P<rest>[0-9a-f]{62})", re.ASCII)
_SHARD = re.compile(r"[0-9a-f]{2}", re.ASCII)
FILES = "files"
"""The folder of the files of keys, below the install's directory."""
_INCOMING = "incoming"
_FRESH_S = 5.0
"""A file is made, then locked: one so young may not be locked yet."""


class Sealed(NamedTuple):
    """What was written: its reference (`sha256:<64 hex digits>`), its size and its MD5."""

    ref: str
    size_bytes: int
    md5: str


class Incoming:
    """A file on its way. It holds a lock as long as its process lives, so that a dead one's rest can be told."""

    def __init__(self, store: "FileStore", max_bytes: int, hint: str) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._hint = hint
        self._looked_at = 0
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size_bytes = 0
        self._lock = threading.Lock()
        """Whoever lets go may do so while a thread still writes: its number may be another file's a moment later."""
        self._path = store.incoming / secrets.token_hex(16)
        with full_disk_named(self._path):
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes at the end.

        Raises:
            PayloadTooLarge: it has become larger than it may; what was written stays until `discard`.
            DiskFull: there is no room, or too little would be left.
        """
        self.size_bytes += len(data)
        if self.size_bytes > self._max_bytes:
            raise PayloadTooLarge(
                f"the file is over the limit of {self._max_bytes} bytes: {self._hint or 'send a smaller one'}",
                param="file",
                code="file_too_large",
            )
        if self.size_bytes - self._looked_at >= _LOOK_BYTES:
            require_space(self._store.root, 0, reserve_bytes=RESERVE_BYTES)
            self._looked_at = self.size_bytes
        left = memoryview(data)
        with self._lock, full_disk_named(self._path):
            self._sha256.update(data)
            self._md5.update(data)
            while left:
                left = left[os.write(self._descriptor, left) :]

    def seal(self) -> Sealed:
        """Put everything on the disk; no more can be written. It has no name yet.

        Raises:
            DiskFull: there is no room after all.
        """
        with full_disk_named(self._path):
            os.fsync(self._descriptor)
        return Sealed(f"sha256:{self._sha256.hexdigest()}", self.size_bytes, self._md5.hexdigest())

    def place(self) -> None:
        """Give what was sealed its name. The same content that is there already is left alone.

        Raises:
            DiskFull: no room for the entry.
        """
        target = self._store.path(f"sha256:{self._sha256.hexdigest()}")
        if not target.exists():
            make_private_folder(target.parent)
            with full_disk_named(target):
                self._path.replace(target)
                sync_folder(target.parent)
        self.discard()

    def discard(self) -> None:
        """Let go; what has no name is removed. May be called at any time, and more than once."""
        with self._lock:
            if self._descriptor >= 0:
                self._path.unlink(missing_ok=True)
                os.close(self._descriptor)
                self._descriptor = -1


class FileStore:
    """The folder of the files, made if missing, which the owner alone can read.

    Which content may be removed is known to whoever keeps the references (`infra/file_rows.py`).
    """

    def __init__(self, root: Path) -> None:
        self.root = make_private_folder(root)
        self.incoming = make_private_folder(root / _INCOMING)

    def begin(self, max_bytes: int, expected_bytes: int = 0, hint: str = "") -> Incoming:
        """A new file of at most `max_bytes`; `expected_bytes` is what its sender announces, `hint` what the sentence
        about a larger one ends with.

        Raises:
            DiskFull: there is no room for so much.
        """
        require_space(self.root, min(expected_bytes, max_bytes), reserve_bytes=RESERVE_BYTES)
        return Incoming(self, max_bytes, hint)

    def path(self, ref: str) -> Path:
        """Where content lies, or would lie.

        Raises:
            NotFound: this is no reference.
        """
        match = _REF.fullmatch(ref)
        if match is None:
            raise NotFound(f"{ref[:100]!r} is no reference of a file's content")
        return self.root / match["shard"] / match["rest"]

    def open(self, ref: str) -> BinaryIO:
        """The content, for reading; it stays readable when it is removed meanwhile.

        Raises:
            NotFound: it is not kept.
        """
        try:
            return os.fdopen(os.open(self.path(ref), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
        except FileNotFoundError as error:
            raise NotFound(f"the content {ref} is not kept any more", code="file_gone") from error

    def remove(self, ref: str) -> None:
        """Remove content; what is gone already is no error."""
        self.path(ref).unlink(missing_ok=True)

    def clear_incoming(self) -> int:
        """Remove half-written files of processes that have died; returns how many there were."""
        limit = time.time() - _FRESH_S
        return sum(_unlink_orphan(path) for path in _older(self.incoming, limit))

    def older(self, than_s: float) -> Iterator[set[str]]:
        """References of the content that was put here longer ago, some at a time."""
        limit = time.time() - than_s
        for shard in os.scandir(self.root):
            if _SHARD.fullmatch(shard.name) and shard.is_dir(follow_symlinks=False):
                yield {f"sha256:{shard.name}{path.name}" for path in _older(Path(shard.path), limit)}


def _older(folder: Path, limit: float) -> Iterator[Path]:
    for entry in os.scandir(folder):
        try:
            if entry.stat(follow_symlinks=False).st_mtime < limit:
                yield Path(entry.path)
        except FileNotFoundError:
            continue


def _unlink_orphan(path: Path) -> bool:
    """Remove a half-written file unless its writer lives."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
