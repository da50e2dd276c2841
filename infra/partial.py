"""A file on its way: its bytes in `<name>.part`, and beside it a note of whose bytes they are."""

import fcntl
import os
import threading
from pathlib import Path

from pydantic import ValidationError

from infra.errors import Conflict
from infra.files import full_disk_named, make_private_folder, sha256_of, sync_folder, write_atomic
from infra.types import Frozen


class PartNote(Frozen):
    """Whose bytes a part holds; without an `etag` or a `sha256` they cannot be told from another file's."""

    url: str
    etag: str | None = None
    sha256: str | None = None


class Part:
    """The part of `target`, held by this process alone; every method blocks and may be called from any thread.

    A call that comes after `close` does nothing, so that a cancelled download never writes into a closed file.
    """

    def __init__(self, target: Path, note: PartNote) -> None:
        self.target = target
        self.note = note
        self.done_bytes = 0
        self._path = target.with_name(target.name + ".part")
        self._note_path = target.with_name(target.name + ".part.json")
        self._turn = threading.Lock()
        self._descriptor = -1
        self._closed = False

    def open(self) -> None:
        """Open or create the part, and keep what it has if it is of the same file and can be proven to be so: by its
        SHA-256, wherever it comes from, or by its URL and ETag.

        Raises:
            Conflict: another download of the same target is running.
            DiskFull: no room.
        """
        with self._turn:
            if self._closed:
                return
            make_private_folder(self.target.parent)
            self._descriptor = _open_locked(self._path)
            kept, new = self._read_note(), self.note
            if kept is not None and kept.sha256 == new.sha256 and (kept.sha256 or (kept.etag and kept.url == new.url)):
                self.note = kept
                self.done_bytes = os.lseek(self._descriptor, 0, os.SEEK_END)
            else:
                os.ftruncate(self._descriptor, 0)

    def append(self, data: bytes) -> None:
        """Add bytes at the end.

        Raises:
            DiskFull: no room; what fitted is counted in `done_bytes`.
        """
        with self._turn, full_disk_named(self.target):
            left = memoryview(data)
            while left and self._descriptor >= 0:
                written = os.pwrite(self._descriptor, left, self.done_bytes)
                self.done_bytes += written
                left = left[written:]

    def restart(self, etag: str | None) -> None:
        """Begin anew: the bytes to come are of the file that the server calls `etag`."""
        with self._turn:
            if self._descriptor < 0:
                return
            os.ftruncate(self._descriptor, 0)
            self.done_bytes = 0
            self.note = self.note.model_copy(update={"etag": etag})
            write_atomic(self._note_path, self.note.model_dump_json().encode())

    def finish(self, sha256: str | None) -> str | None:
        """Give the part its name if it is what `sha256` says; else return the digest that it has."""
        with self._turn:
            if self._descriptor < 0:
                return None
            with full_disk_named(self.target):
                os.fsync(self._descriptor)
            if sha256 is not None and (found := sha256_of(self._path)) != sha256:
                return found
            self._path.replace(self.target)
            self._note_path.unlink(missing_ok=True)
            sync_folder(self.target.parent)
            return None

    def discard(self) -> None:
        """Remove what was fetched."""
        with self._turn:
            if self._descriptor >= 0:
                self._path.unlink(missing_ok=True)
                self._note_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the part; what it has stays for the next one."""
        with self._turn:
            self._closed = True
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _read_note(self) -> PartNote | None:
        try:
            return PartNote.model_validate_json(self._note_path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None  # no note, or one of another version: the part is begun anew


def _open_locked(path: Path) -> int:
    """Open for us alone. The lock goes with the process, however it ends."""
    with full_disk_named(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if not _locked(descriptor, path):
        os.close(descriptor)
        raise Conflict(f"{path.name.removesuffix('.part')} is being downloaded already: wait for it")
    return descriptor


def _locked(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False  # held, or its holder finished between our open and our lock
