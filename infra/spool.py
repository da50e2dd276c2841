"""The spool: finished runs as lines of segment files, appended on the request's path and drained elsewhere.

A line is in the page cache when `append` returns: it outlives this process, not a power cut (an fsync a request would
cost a hundred times more). `<ns>.open` is being written, `<ns>.seg` is closed and may be drained.

The spool never refuses a request: past its size task detail is left out, past a tenth more whole runs are, and both
are counted.
"""

import errno
import os
import time
from pathlib import Path

from infra.clock import Clock, monotonic
from infra.records import Boot, RunRecord

_OVERFLOW = 1.1
"""Times the limit at which whole runs are dropped."""


class Spool:
    """Appends runs to segments under `directory` (made if missing, readable by the owner alone).

    Segments that an earlier process left open are closed; a torn last line is set aside in a `.torn` file.
    """

    def __init__(self, directory: Path, *, max_bytes: int, segment_bytes: int, clock: Clock = monotonic) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = directory
        self.max_bytes = max_bytes
        self.segment_bytes = segment_bytes
        self.dropped_details = 0
        self.dropped_runs = 0
        self._descriptor = -1
        self._path: Path | None = None
        self._written_bytes = 0
        for left in sorted(directory.glob("*.open")):
            _close_segment(left)
        self._clock = clock
        self._looked_at = clock()
        self._closed_bytes = self._measure()

    def append(self, run: RunRecord) -> None:
        """Write one run. Costs one system call; never raises for want of space."""
        if self.used_bytes < self.max_bytes or self._freed():
            self._write(run.line())
        elif self.used_bytes < self.max_bytes * _OVERFLOW:
            self.dropped_details += 1
            self._write(run.line(detail=False))
        else:
            self.dropped_runs += 1

    def begin(self, boot: Boot) -> None:
        """Write the first line of a front's life: no run of an earlier one is running any more."""
        self._write(boot.line())

    def close(self) -> None:
        """Close the open segment, if there is one, so that it may be drained; the next run opens another."""
        if self._path is not None:
            os.close(self._descriptor)
            self._path.rename(self._path.with_suffix(".seg"))
            self._closed_bytes += self._written_bytes
            self._path, self._descriptor, self._written_bytes = None, -1, 0

    @property
    def used_bytes(self) -> int:
        """Space that the segments take."""
        return self._closed_bytes + self._written_bytes

    def _write(self, line: bytes) -> None:
        try:
            if self._path is None:
                self._open()
            _write_whole(self._descriptor, line, self._written_bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
                raise
            self.dropped_runs += 1
            return
        self._written_bytes += len(line)
        if self._written_bytes >= self.segment_bytes:
            self.close()

    def _open(self) -> None:
        path = self.directory / f"{time.time_ns()}.open"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._path, self._written_bytes = path, 0

    def _freed(self) -> bool:
        """A drainer may have removed segments: look again, at most once a second."""
        now = self._clock()
        if now - self._looked_at >= 1.0:
            self._looked_at = now
            self._closed_bytes = self._measure()
        return self.used_bytes < self.max_bytes

    def _measure(self) -> int:
        return sum(path.stat().st_size for path in self.directory.glob("*.seg"))


def _write_whole(descriptor: int, line: bytes, offset_bytes: int) -> None:
    """Append the line whole or not at all."""
    if os.write(descriptor, line) < len(line):
        os.ftruncate(descriptor, offset_bytes)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _close_segment(path: Path) -> None:
    """Turn a segment of a dead process into a closed one; what stands after the last newline is set aside."""
    text = path.read_bytes()
    whole, newline, torn = text.rpartition(b"\n")
    if torn:
        path.with_suffix(".torn").write_bytes(torn)
        os.truncate(path, len(whole) + len(newline))
    path.rename(path.with_suffix(".seg"))
