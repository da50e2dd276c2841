"""Logging: text or JSON lines on stderr; the access log is written in batches, off the request's path."""

import asyncio
import functools
import logging
import os
import re
import sys
import time
from typing import Protocol

import orjson

from infra.settings import LogSettings

FLUSH_S = 0.1
_WORDLESS = re.compile(r"[^\w.:-]")
"""An error's code may be a far service's: it stays one word, and can forge no line."""


def set_up(settings: LogSettings) -> None:
    """Configure the root logger of this process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter()
        if settings.format == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    )
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    for chatty in ("aiohttp.access", "alembic", "uvicorn", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


class AccessRecord(Protocol):
    """What a line of the access log is made of: names and numbers of ours, never a key or a prompt."""

    run: str
    kind: str
    key: str
    model: str
    engine: str
    status: int
    error: str | None


class AccessLog:
    """One line a request, handed to the system every 100 ms: a write a request would cost more than the rest of it.

    Call `flush` before the process ends.
    """

    def __init__(self, settings: LogSettings, descriptor: int = 2) -> None:
        self._json = settings.format == "json"
        self._on = settings.access
        self._descriptor = descriptor
        self._lines: list[str] = []

    def write(self, record: AccessRecord, seconds: float) -> None:
        """Note one request; must be called on the loop."""
        if not self._on:
            return
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
        self._lines.append((_json_line if self._json else _text_line)(time.time(), record, seconds))

    def flush(self) -> None:
        """Write what has gathered. A closed or full stderr loses lines, never a request."""
        lines, self._lines = self._lines, []
        if lines:
            try:
                os.write(self._descriptor, "\n".join(lines).encode() + b"\n")
            except BlockingIOError:
                pass  # its reader is behind; the next lines may find room
            except OSError:
                self._on = False


def _text_line(when: float, record: AccessRecord, seconds: float) -> str:
    error = f" error={_WORDLESS.sub('_', record.error)}" if record.error else ""
    return (
        f"{_second(int(when))} access run={record.run} key={record.key} kind={record.kind} model={record.model} "
        f"status={record.status} ms={seconds * 1000:.1f} engine={record.engine or '-'}{error}"
    )


def _json_line(when: float, record: AccessRecord, seconds: float) -> str:
    fields = {
        "time": when,
        "logger": "access",
        "run": record.run,
        "key": record.key,
        "kind": record.kind,
        "model": record.model,
        "status": record.status,
        "ms": round(seconds * 1000, 1),
        "engine": record.engine,
        "error": record.error,
    }
    return orjson.dumps(fields).decode()


@functools.lru_cache(maxsize=4)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
