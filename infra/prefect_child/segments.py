"""Reading the spool: closed segments, oldest first, a bounded number of lines at a time, gone once committed."""

import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from infra.clock import Clock, monotonic

BATCH_LINES: Final = 100
BATCH_BYTES: Final = 8 << 20
LINE_BYTES: Final = 256 << 20
"""A longer line is none of ours."""
_HEAD_BYTES: Final = 4096
"""What is kept of such a line."""
_BUFFER_BYTES: Final = 1 << 18
_FEW: Final = 64
_LIST_S: Final = 5.0
"""A long queue is listed anew only so often: listing it costs more than reading from it."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a segment without its newline; `oversized` says that only its head was kept."""

    text: bytes
    segment: str
    oversized: bool = False


@dataclass(slots=True)
class Chunk:
    """Some lines in the order of the spool, and how far each segment was read for them."""

    lines: list[Line] = field(default_factory=list)
    read_to: list[tuple[Path, int]] = field(default_factory=list)
    finished: list[Path] = field(default_factory=list)
    size_bytes: int = 0

    def full(self) -> bool:
        """Whether no further line is to be read. One line may be larger than what is left."""
        return len(self.lines) >= BATCH_LINES or self.size_bytes >= BATCH_BYTES


class Segments:
    """The closed segments (`*.seg`) of a spool's directory. Nothing is remembered that a restart would need: whoever
    commits a chunk a second time must not mind."""

    def __init__(self, directory: Path, *, line_bytes: int = LINE_BYTES, clock: Clock = monotonic) -> None:
        self.directory = directory
        self._line_bytes = line_bytes
        self._clock = clock
        self._listed_s = float("-inf")
        self._waiting: deque[Path] = deque()
        self._committed: dict[Path, int] = {}

    def waiting(self) -> int:
        """How many segments wait; up to 5 seconds old where they are many."""
        if len(self._waiting) < _FEW or self._clock() - self._listed_s > _LIST_S:
            self._waiting = deque(_closed(self.directory))
            self._listed_s = self._clock()
        return len(self._waiting)

    def oldest_waiting_s(self) -> float:
        """Since when the oldest one waits, by its name; 0.0 without one."""
        if not self._waiting or not self._waiting[0].stem.isdecimal():
            return 0.0
        return max(0.0, time.time() - int(self._waiting[0].stem) / 1e9)

    def read(self) -> Chunk:
        """The next lines after the last commit: the same ones again until `commit`.

        Raises:
            OSError: a segment cannot be read.
        """
        chunk = Chunk()
        for path in self._waiting:
            try:
                self._read_into(chunk, path)
            except FileNotFoundError:
                chunk.finished.append(path)
            if chunk.full():
                break
        return chunk

    def commit(self, chunk: Chunk) -> None:
        """Everything in the chunk is kept elsewhere now: its finished segments are deleted.

        Raises:
            OSError: one cannot be deleted; its lines will not be read again by this process.
        """
        self._committed.update(chunk.read_to)
        for path in chunk.finished:
            path.unlink(missing_ok=True)
            self._committed.pop(path, None)
            if self._waiting and self._waiting[0] == path:
                self._waiting.popleft()

    def _read_into(self, chunk: Chunk, path: Path) -> None:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            position = file.seek(self._committed.get(path, 0))
            while position < size_bytes and not chunk.full():
                text, oversized = self._next_line(file)
                position = file.tell()
                chunk.lines.append(Line(text.rstrip(b"\n"), path.name, oversized))
                chunk.size_bytes += len(text)
        chunk.read_to.append((path, position))
        if position >= size_bytes:
            chunk.finished.append(path)

    def _next_line(self, file: BinaryIO) -> tuple[bytes, bool]:
        """A line, or the head of one that is too long, and whether it is."""
        text = file.readline(self._line_bytes + 1)
        if len(text) <= self._line_bytes:
            return text, False
        head = text[:_HEAD_BYTES]
        while text and not text.endswith(b"\n"):
            text = file.readline(BATCH_BYTES)
        return head, True


def _closed(directory: Path) -> list[Path]:
    """Closed segments, oldest first: their names are times in nanoseconds."""
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return []
    names = [entry.name for entry in entries if entry.name.endswith(".seg") and entry.is_file(follow_symlinks=False)]
    return [directory / name for name in sorted(names, key=lambda name: (len(name), name))]
