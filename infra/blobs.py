"""Blobs: bytes under the name of their own SHA-256, for what is too large to stand in a database row."""

import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from infra.errors import NotFound
from infra.files import make_private_folder, write_atomic

_REF = re.compile(r"sha256:(?P<shard>[0-9a-f]{2})(?P<rest>[0-9a-f]{62})", re.ASCII)
_WRITING_S = 3600.0
"""No write takes longer; an older half-written file is nobody's."""
_SHARD = re.compile(r"[0-9a-f]{2}", re.ASCII)


class Held(NamedTuple):
    """A blob that may be let go again: `made_ns` is when it was made, None where it was there before."""

    ref: str
    made_ns: int | None


class _Aged(NamedTuple):
    modified_at: float
    size_bytes: int
    path: Path


class Blobs:
    """A folder of blobs, made if missing, which the owner alone can read. References are `sha256:<64 hex digits>`.

    Writing does not wait for the disk (no fsync): a blob outlives this process, not a power cut, just as the spool
    does, and an fsync costs more than a run's whole record. What a power cut tore is told by its hash: `get` does not
    find it, and `put` writes it anew.
    """

    def __init__(self, root: Path) -> None:
        self.root = make_private_folder(root)

    def put(self, data: bytes) -> str:
        """Keep `data`, whole or not at all; returns its reference. Content that is there already gets a new age.

        Raises:
            DiskFull: no room; nothing is left behind.
        """
        return self.hold(data).ref

    def hold(self, data: bytes) -> Held:
        """Keep `data` as `put` does, perhaps for a short time only: see `let_go`.

        Raises:
            DiskFull: no room; nothing is left behind.
        """
        ref = f"sha256:{hashlib.sha256(data).hexdigest()}"
        path = self._path(ref)
        if _refreshed(path, data):
            return Held(ref, None)
        make_private_folder(path.parent)
        write_atomic(path, data, durable=False)
        return Held(ref, path.stat(follow_symlinks=False).st_mtime_ns)

    def let_go(self, held: Held) -> None:
        """Delete it, unless somebody else has put the same content, before or since: then it is theirs, too. What
        cannot be deleted now is pruned later."""
        path = self._path(held.ref)
        with suppress(OSError):
            if path.stat(follow_symlinks=False).st_mtime_ns == held.made_ns:
                path.unlink()

    def get(self, ref: str) -> bytes:
        """The content, compared with its name.

        Raises:
            NotFound: no reference, not kept any more, or damaged.
        """
        path = self._path(ref)
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                data = file.read()
        except OSError as error:
            raise NotFound(f"blob {ref} is not kept (any more): {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != ref.removeprefix("sha256:"):
            raise NotFound(f"blob {ref} is damaged on the disk")
        return data

    def open(self, ref: str) -> BinaryIO:
        """The content for reading, whatever its size, and not compared with its name.

        Raises:
            NotFound: no reference, or not kept any more.
        """
        try:
            return os.fdopen(os.open(self._path(ref), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
        except OSError as error:
            raise NotFound(f"blob {ref} is not kept (any more): {error.strerror}") from error

    def find(self, ref: str) -> Path:
        """The file of the content, for a program that reads it by itself; not compared with its name.

        Raises:
            NotFound: no reference, or not kept any more.
        """
        path = self._path(ref)
        if not path.is_file():
            raise NotFound(f"blob {ref} is not kept (any more)")
        return path

    def prune(self, older_than_s: float, max_bytes: int | None = None) -> int:
        """Delete what was last put more than `older_than_s` seconds ago, then the oldest until the rest takes no more
        than `max_bytes`; returns how many went."""
        kept = sorted(self._all())
        used_bytes = sum(blob.size_bytes for blob in kept)
        limit = time.time() - older_than_s
        removed = 0
        for blob in kept:
            if blob.modified_at >= limit and (max_bytes is None or used_bytes <= max_bytes):
                break
            removed += _unlink_unchanged(blob)
            used_bytes -= blob.size_bytes
        return removed

    def _path(self, ref: str) -> Path:
        match = _REF.fullmatch(ref)
        if match is None:
            raise NotFound(f"{ref[:100]!r} is no reference of a blob")
        return self.root / match["shard"] / match["rest"]

    def _all(self) -> Iterator[_Aged]:
        """Every file of the store, half-written ones of a process that died among them; not those being written."""
        half_written_before = time.time() - _WRITING_S
        for shard in os.scandir(self.root):
            if not _SHARD.fullmatch(shard.name) or not shard.is_dir(follow_symlinks=False):
                continue
            for entry in os.scandir(shard.path):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if entry.name.startswith(".") and status.st_mtime > half_written_before:
                    continue
                yield _Aged(status.st_mtime, status.st_size, Path(entry.path))


def is_ref(text: object) -> bool:
    """Whether this has the form of a blob's reference."""
    return isinstance(text, str) and _REF.fullmatch(text) is not None


def _refreshed(path: Path, data: bytes) -> bool:
    """Whether this very content is there; its age then starts anew."""
    try:
        if path.stat(follow_symlinks=False).st_size != len(data) or path.read_bytes() != data:
            return False
        os.utime(path, follow_symlinks=False)
    except OSError:
        return False
    return True


def _unlink_unchanged(blob: _Aged) -> bool:
    """Delete it, unless somebody has put it again since it was listed."""
    try:
        if blob.path.stat(follow_symlinks=False).st_mtime != blob.modified_at:
            return False
        blob.path.unlink()
    except FileNotFoundError:
        return False
    return True
