"""What children write: cut into lines, the last ones kept, all of them passed on without ever waiting."""

import contextlib
import json
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable

LINES_KEPT = 20
LINE_CHARACTERS = 2000
"""A longer line is cut here; the rest of it is dropped."""
_PENDING_BYTES = LINE_CHARACTERS * 4
_UNPRINTABLE = {code: None for code in (*range(32), *range(127, 160)) if chr(code) != "\t"}

LineSink = Callable[[str, str], None]
"""Takes a child's name and one line of its output; must not block."""


class LineTail:
    """Cuts a stream of bytes into lines, hands each to `sink` and remembers the last ones.

    Control characters are dropped, so that no output can steer a terminal; `secrets` are masked.
    """

    def __init__(self, name: str, sink: LineSink, secrets: tuple[str, ...] = ()) -> None:
        self._name = name
        self._sink = sink
        self._secrets = secrets
        self._kept: deque[str] = deque(maxlen=LINES_KEPT)
        self._open = b""

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, newest last."""
        return tuple(self._kept)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        first, *rest = data.split(b"\n")
        self._open += first[: max(0, _PENDING_BYTES - len(self._open))]
        for part in rest:
            self._finish_line()
            self._open = part[:_PENDING_BYTES]

    def end(self) -> None:
        """The stream is over: an unfinished line counts."""
        if self._open:
            self._finish_line()

    def _finish_line(self) -> None:
        line = self._open.decode("utf-8", "replace").translate(_UNPRINTABLE)[:LINE_CHARACTERS]
        self._open = b""
        for secret in self._secrets:
            line = line.replace(secret, "[secret]")
        if line.strip():
            self._kept.append(line)
            self._sink(self._name, line)


class StderrSink:
    """A `LineSink` that writes `name: line` to a descriptor from a thread of its own.

    `as_json`: lines that are JSON objects pass as they are, the others become one, so that every line is JSON.

    Whoever reads that descriptor may be slow or stopped: lines that find the queue full are dropped and counted, and
    the count is written once there is room again.
    """

    def __init__(self, descriptor: int = 2, queue_lines: int = 2000, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._descriptor = descriptor
        self._queue: queue.Queue[str | None] = queue.Queue(queue_lines)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="child-output", daemon=True)
        self._thread.start()

    def __call__(self, name: str, line: str) -> None:
        try:
            if self._dropped:
                self._queue.put_nowait(self._text("supervisor", f"{self._dropped} lines of output were dropped"))
                self._dropped = 0
            self._queue.put_nowait(self._text(name, line))
        except queue.Full:
            self._dropped += 1

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what is queued, waiting no longer than `timeout_s`."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
        self._thread.join(timeout_s)

    def _text(self, name: str, line: str) -> str:
        if not self._as_json:
            return f"{name}: {line}\n"
        if line.startswith("{") and line.endswith("}"):
            return f"{line}\n"
        return json.dumps({"time": time.time(), "logger": name, "message": line}) + "\n"

    def _write(self) -> None:
        while (text := self._queue.get()) is not None:
            remaining = memoryview(text.encode())
            try:
                while remaining:
                    remaining = remaining[os.write(self._descriptor, remaining) :]
            except BlockingIOError:
                continue  # a non-blocking terminal that is full: this line is lost
            except OSError:
                return  # nobody reads us any more
