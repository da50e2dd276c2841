"""Files with the events of responses that are made in the background, below `<home>/responses/`. Everything blocks.

The worker process appends lines while it makes a response, the front reads them for whoever follows it; both are on one
machine, and nothing waits for the disk. A file that is read-only is closed: no line is added any more, so that whatever
was said after its last one stays said.
"""

import fcntl
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from infra.errors import InvalidRequest
from infra.files import make_private_folder
from infra.types import ResponseId

FOLDER: Final = "responses"
"""Below the home."""
MOST_BYTES: Final = 16 << 20
"""Of one response's events; what would come after them is not written."""
READ_BYTES: Final = 8 << 10
"""About how much is read at once."""
_WRITABLE: Final = 0o200
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)


class Lines(NamedTuple):
    """Whole lines of a file. `more`: others follow at once; `closed`: none is added any more. `file` tells a file from
    one that has taken its place since; None: there is none."""

    data: bytes
    more: bool
    closed: bool
    file: int | None


_NO_FILE: Final = Lines(b"", more=False, closed=False, file=None)


class EventsWriter:
    """Appends to one file, as long as nobody else does and nobody has closed it. Threads may share it."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it; one that was closed is replaced.

        Raises:
            OSError: it cannot be written, for want of space, say.
        """
        self._turn = threading.Lock()
        self._descriptor = _opened(path)
        self.size_bytes = os.fstat(self._descriptor).st_size

    def content(self) -> bytes:
        """All that stands there."""
        return _read(self._descriptor, 0, self.size_bytes)

    def cut(self, size_bytes: int) -> None:
        """Take away what stands after so many bytes: a line that was torn."""
        if size_bytes < self.size_bytes:
            os.ftruncate(self._descriptor, size_bytes)
            self.size_bytes = size_bytes

    def append(self, lines: bytes) -> bool:
        """Add lines, all or none; whether they are there. Once they are not, none is added any more."""
        with self._turn:
            try:
                kept = self._descriptor >= 0 and self._append(lines)
            except OSError:
                kept = False
            if not kept:
                self._let_go()
            return kept

    def close(self, *, over: bool) -> None:
        """Have done with the file; `over`: nobody may add to it any more."""
        with self._turn:
            if over and self._descriptor >= 0:
                _close_file(self._descriptor)
            self._let_go()

    def _append(self, lines: bytes) -> bool:
        with _locked(self._descriptor):
            found = os.fstat(self._descriptor)
            if _closed(found) or found.st_size != self.size_bytes or self.size_bytes + len(lines) > MOST_BYTES:
                return False
            if not _written(self._descriptor, lines):
                os.ftruncate(self._descriptor, self.size_bytes)
                return False
            self.size_bytes += len(lines)
            return True

    def _let_go(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


class ResponseEvents:
    """The files of one install, one a response, readable by the owner alone."""

    def __init__(self, home: Path) -> None:
        self._root = home / FOLDER

    def write(self, response: ResponseId) -> EventsWriter:
        """The one who adds to a response's file.

        Raises:
            OSError, DiskFull: it cannot be written.
        """
        make_private_folder(self._root)
        return EventsWriter(self._path(response))

    def read(self, response: ResponseId, begin: int) -> Lines:
        """The lines from a byte on, about `READ_BYTES` of them."""
        try:
            descriptor = os.open(self._path(response), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return _NO_FILE
        try:
            found = os.fstat(descriptor)
            data = _read(descriptor, begin, READ_BYTES)
            if b"\n" not in data and found.st_size > begin + len(data):  # a line that is longer than that
                data = _read(descriptor, begin, found.st_size - begin)
        finally:
            os.close(descriptor)
        lines = data[: data.rfind(b"\n") + 1]
        more = bool(lines) and found.st_size > begin + len(lines)
        return Lines(lines, more, _closed(found), found.st_ino)

    def close(self, response: ResponseId) -> None:
        """Let nobody add to a response's file any more."""
        with suppress(FileNotFoundError):
            descriptor = os.open(self._path(response), os.O_RDONLY | os.O_CLOEXEC)
            try:
                _close_file(descriptor)
            finally:
                os.close(descriptor)

    def size_bytes(self, response: ResponseId) -> int:
        """What a response's file takes; 0 if there is none."""
        try:
            return self._path(response).stat().st_size
        except FileNotFoundError:
            return 0

    def forget(self, response: ResponseId) -> None:
        """Remove a response's file, if there is one."""
        path = self._path(response)
        for each in (path, _new(path)):
            each.unlink(missing_ok=True)

    def known(self) -> list[ResponseId]:
        """The responses that have a file."""
        try:
            return [ResponseId(entry.name) for entry in os.scandir(self._root) if _ID.fullmatch(entry.name)]
        except FileNotFoundError:
            return []

    def _path(self, response: ResponseId) -> Path:
        if not _ID.fullmatch(response):
            raise InvalidRequest(f"{response[:100]!r} is no id of a response")
        return self._root / response


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        if _closed(path.stat()):
            new = _new(path)
            descriptor = os.open(new, flags | os.O_TRUNC, 0o600)
            new.rename(path)
            return descriptor
    return os.open(path, flags, 0o600)


def _new(path: Path) -> Path:
    """Where the file that is to take its place is made: beside it, so that it is told from it by its number."""
    return path.with_name(f".{path.name}.new")


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    """Have a file for a moment, so that it is not closed while something is added."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _close_file(descriptor: int) -> None:
    """Make it read-only: that takes no room, so that it can be done on a full disk."""
    with _locked(descriptor):
        os.fchmod(descriptor, 0o400)


def _closed(found: os.stat_result) -> bool:
    return not found.st_mode & _WRITABLE


def _read(descriptor: int, begin: int, most_bytes: int) -> bytes:
    pieces = []
    while most_bytes > 0 and (piece := os.pread(descriptor, most_bytes, begin)):
        pieces.append(piece)
        begin, most_bytes = begin + len(piece), most_bytes - len(piece)
    return b"".join(pieces)


def _written(descriptor: int, lines: bytes) -> bool:
    """Whether all of it is there; a disk that is full may take a part of it."""
    try:
        return os.write(descriptor, lines) == len(lines)
    except OSError:
        return False
