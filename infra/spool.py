"""The spool: finished runs as lines of segment files, appended on the request's path and drained elsewhere.

A line is in the page cache when `append` returns: it outlives this process, not a power cut (an fsync a request would
cost a hundred times more). `<ns>.open` is being written, `<ns>.seg` is closed and may be drained.

The spool never refuses a request: past its size task detail is left out, past a tenth more whole runs are, and both
are counted.
"""

import errno
import logging
import os
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from infra.errors import DiskFull
from infra.files import make_private_folder, write_atomic
from infra.records import Boot, RunRecord

log = logging.getLogger("infra.spool")

MANY = 64
"""So many segments wait only where nobody reads them; from then on they are closed when they are full."""
_OVERFLOW = 1.1
"""Times the limit at which whole runs are dropped."""


class Spool:
    """Appends runs to segments under `directory` (made if missing, readable by the owner alone).

    Segments that an earlier process left open are closed; a torn last line is set aside in a `.torn` file.
    """

    def __init__(self, directory: Path, *, max_bytes: int, segment_bytes: int) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = directory
        self.max_bytes = max_bytes
        self.segment_bytes = segment_bytes
        self.dropped_details = 0
        self.dropped_runs = 0
        self._first = b""
        """The line of this life's beginning, until it is written."""
        self._descriptor = -1
        self._path: Path | None = None
        self._written_bytes = 0
        self._written_lines = 0
        self._refused = False
        for left in sorted(directory.glob("*.open"), key=_age):
            _close_segment(left)
        self._closed = deque(_sizes(directory))
        self._closed_bytes = sum(size for _, size in self._closed)
        self._last_ns = max((int(path.stem) for path, _ in self._closed if path.stem.isdecimal()), default=0)

    def append(self, run: RunRecord) -> None:
        """Write one run. Costs one system call; never raises for want of space, nor of anything else of the system."""
        if self.used_bytes < self.max_bytes or self._freed():
            self._keep(run.line())
        elif self.used_bytes < self.max_bytes * _OVERFLOW:
            self.dropped_details += 1
            self._keep(run.line(detail=False))
        else:
            self.dropped_runs += 1

    def begin(self, boot: Boot) -> None:
        """Write the first line of a front's life: no run of an earlier one is running any more."""
        self._first = boot.line()
        self._begun()

    def roll(self) -> None:
        """Let the open segment be read, unless many wait already: a reader that comes back will find them first."""
        self._begun()
        self._freed()
        if len(self._closed) < MANY:
            self.close()

    def close(self) -> None:
        """Close the open segment, if there is one, so that it may be drained; the next run opens another."""
        path, self._path = self._path, None
        if path is None:
            return
        closed = path.with_suffix(".seg")
        try:
            os.close(self._descriptor)
            path.rename(closed)
        except OSError as error:
            self._lost(error, self._written_lines)
        else:
            self._closed.append((closed, self._written_bytes))
            self._closed_bytes += self._written_bytes
        self._written_bytes = self._written_lines = 0

    @property
    def used_bytes(self) -> int:
        """Space that the segments take; what was drained in the last half second may be among it."""
        return self._closed_bytes + self._written_bytes

    def _keep(self, line: bytes) -> None:
        if not (self._begun() and self._write(line)):
            self.dropped_runs += 1

    def _begun(self) -> bool:
        """Whether the first line is written; a disk that was full may have room for it now."""
        if self._first and self._write(self._first):
            self._first = b""
        return not self._first

    def _write(self, line: bytes) -> bool:
        """Append the line whole or not at all; whether it is there."""
        try:
            if self._path is None:
                self._open()
            _write_whole(self._descriptor, line)
        except OSError as error:
            self._lost(error, 0)
            self._mend()
            return False
        self._refused = False
        self._written_bytes += len(line)
        self._written_lines += 1
        if self._written_bytes >= self.segment_bytes:
            self.close()
        return True

    def _open(self) -> None:
        self._last_ns = max(time.time_ns(), self._last_ns + 1)  # in order even if the clock is set back
        path = self.directory / f"{self._last_ns}.open"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            self._descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            make_private_folder(self.directory)
            self._descriptor = os.open(path, flags, 0o600)
        self._path = path

    def _mend(self) -> None:
        """Take a torn line back; where that cannot be, its segment ends with it, and the reader sets it aside."""
        if self._path is None:
            return
        try:
            os.ftruncate(self._descriptor, self._written_bytes)
        except OSError:
            self.close()

    def _freed(self) -> bool:
        """See what a drainer has removed, oldest first; whether there is space."""
        with suppress(OSError):
            while self._closed and not self._closed[0][0].exists():
                self._closed_bytes -= self._closed.popleft()[1]
        return self.used_bytes < self.max_bytes

    def _lost(self, error: OSError, runs: int) -> None:
        """Count what is lost and say so, once until something can be written again."""
        self.dropped_runs += runs
        if not self._refused:
            log.error("runs cannot be written to %s and are left out: %s", self.directory, error)
        self._refused = True


def _age(segment: Path) -> tuple[int, str]:
    """What segments are sorted by: their names are times in nanoseconds."""
    return len(segment.name), segment.name


def _sizes(directory: Path) -> list[tuple[Path, int]]:
    """The closed segments, oldest first; a drainer may be deleting some."""
    found = []
    for path in sorted(directory.glob("*.seg"), key=_age):
        with suppress(FileNotFoundError):
            found.append((path, path.stat().st_size))
    return found


def _write_whole(descriptor: int, line: bytes) -> None:
    if os.write(descriptor, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _close_segment(path: Path) -> None:
    """Turn a segment of a dead process into a closed one; what stands after the last newline is set aside, by the
    reader if there is no room for it now."""
    text = path.read_bytes()
    whole, newline, torn = text.rpartition(b"\n")
    if torn:
        try:
            write_atomic(path.with_suffix(".torn"), torn, durable=False)
            os.truncate(path, len(whole) + len(newline))
        except DiskFull as error:
            log.warning("the torn last line of %s stays where it is: %s", path, error.message)
    path.rename(path.with_suffix(".seg"))
