"""The log's lines as text and as JSON, written in batches, to a stderr that may be gone."""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pytest

from infra.log import FLUSH_S, AccessLog, set_up
from infra.settings import LogSettings


@dataclass
class Access:
    """One request."""

    run: str = "run-1"
    kind: str = "chat"
    key: str = "ann"
    model: str = "tiny"
    engine: str = "cpu/tiny"
    status: int = 200
    error: str | None = None


@dataclass
class Pipe:
    """Both ends of a pipe."""

    read: int
    write: int

    def lines(self) -> list[str]:
        """What is there now."""
        try:
            return os.read(self.read, 65536).decode().splitlines()
        except BlockingIOError:
            return []


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield Pipe(read, write)
    for end in (read, write):
        with contextlib.suppress(OSError):
            os.close(end)


@pytest.fixture
def own_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    kept, level = list(root.handlers), root.level
    yield
    root.handlers[:] = kept
    root.setLevel(level)


def settings(kind: Literal["text", "json"] = "text", *, access: bool = True) -> LogSettings:
    return LogSettings(level="info", format=kind, access=access)


async def test_requests_of_a_moment_are_one_write(pipe: Pipe) -> None:
    log = AccessLog(settings(), pipe.write)
    log.write(Access(), 0.0123)
    log.write(Access(run="run-2", engine="", status=404, error="model_not_found"), 1)
    assert pipe.lines() == []
    await asyncio.sleep(FLUSH_S * 1.5)
    first, second = pipe.lines()
    assert first.endswith("access run=run-1 key=ann kind=chat model=tiny status=200 ms=12.3 engine=cpu/tiny")
    assert second.endswith("run=run-2 key=ann kind=chat model=tiny status=404 ms=1000.0 engine=- error=model_not_found")


async def test_as_json(pipe: Pipe) -> None:
    log = AccessLog(settings("json"), pipe.write)
    log.write(Access(error="queue_full", status=503), 0.0004)
    log.flush()
    (line,) = pipe.lines()
    fields = json.loads(line)
    assert fields.pop("time") > 1e9
    assert fields == {
        "logger": "access",
        "run": "run-1",
        "key": "ann",
        "kind": "chat",
        "model": "tiny",
        "status": 503,
        "ms": 0.4,
        "engine": "cpu/tiny",
        "error": "queue_full",
    }


async def test_a_far_service_s_code_forges_no_line(pipe: Pipe) -> None:
    log = AccessLog(settings(), pipe.write)
    log.write(Access(error="x\n2026-01-01 access run=forged key=admin"), 0)
    log.flush()
    (line,) = pipe.lines()
    assert line.count(" run=") == 1
    assert line.endswith(" error=x_2026-01-01_access_run_forged_key_admin")


async def test_flush_takes_what_waits_and_the_next_batch_comes_too(pipe: Pipe) -> None:
    log = AccessLog(settings(), pipe.write)
    log.write(Access(), 0)
    log.flush()
    log.flush()
    assert len(pipe.lines()) == 1
    log.write(Access(), 0)
    await asyncio.sleep(FLUSH_S * 1.5)
    assert len(pipe.lines()) == 1


async def test_switched_off_it_writes_nothing(pipe: Pipe) -> None:
    log = AccessLog(settings(access=False), pipe.write)
    log.write(Access(), 0)
    log.flush()
    assert pipe.lines() == []


async def test_a_closed_stderr_costs_lines_and_no_request(pipe: Pipe) -> None:
    os.close(pipe.read)
    log = AccessLog(settings(), pipe.write)
    log.write(Access(), 0)
    log.flush()
    log.write(Access(), 0)
    log.flush()


async def test_a_full_stderr_loses_lines_until_it_is_read(pipe: Pipe) -> None:
    os.set_blocking(pipe.write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe.write, b"x" * 4096)
    log = AccessLog(settings(), pipe.write)
    log.write(Access(run="lost"), 0)
    log.flush()
    while pipe.lines():
        pass
    log.write(Access(run="kept"), 0)
    log.flush()
    assert "run=kept" in pipe.lines()[-1]


@pytest.mark.usefixtures("own_root_logger")
def test_set_up_as_text(capfd: pytest.CaptureFixture[str]) -> None:
    set_up(settings())
    logging.getLogger("workers.x").info("loaded %s", "tiny")
    logging.getLogger("workers.x").debug("not shown")
    logging.getLogger("uvicorn.error").info("chatty")
    err = capfd.readouterr().err.splitlines()
    assert len(err) == 1
    assert err[0].endswith("INFO workers.x loaded tiny")


@pytest.mark.usefixtures("own_root_logger")
def test_set_up_as_json_has_one_line_for_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    set_up(settings("json"))
    logging.getLogger("api").error("it failed", exc_info=ValueError("two\nlines"))
    (line,) = capfd.readouterr().err.splitlines()
    fields = json.loads(line)
    assert (fields["level"], fields["logger"], fields["message"]) == ("error", "api", "it failed")
    assert fields["exception"].endswith("ValueError: two\nlines")
