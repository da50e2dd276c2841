"""A drainer that is killed at any moment: nothing is lost, nothing is there twice."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from infra.prefect_child.segments import BATCH_LINES
from infra.spool import Spool
from tests.infra.prefect_child.spooled import make_run, run_id

KILLS = 8


def start(home: Path, slow_s: float) -> subprocess.Popen[bytes]:
    module = "tests.infra.prefect_child.drainer_process"
    return subprocess.Popen([sys.executable, "-m", module, str(home), str(slow_s)], stdin=subprocess.DEVNULL)


def batches(home: Path) -> int:
    """How many batches have been committed."""
    try:
        with sqlite3.connect(f"file:{home / 'sink.db'}?mode=ro", uri=True, timeout=30) as database:
            return int(database.execute("SELECT count(*) FROM batch").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        if "database" in locals():
            database.close()


def wait_until_more_than(home: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    ends_s = time.monotonic() + 30
    while batches(home) <= count:
        assert process.poll() is None
        assert time.monotonic() < ends_s
        time.sleep(0.01)


@pytest.mark.slow
def test_killed_in_the_middle_of_a_segment_again_and_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=64 << 20, segment_bytes=1 << 20)
    dice, written = random.Random(7), 0

    def write(count: int) -> None:
        nonlocal written
        for number in range(written, written + count):
            request = {"model": "m", "text": "x" * (70_000 if number % 50 == 0 else 300)}
            spool.append(make_run(number, "failed" if number % 3 else "completed", dict(request)))
        written += count

    write(6 * BATCH_LINES)
    spool.close()
    for _ in range(KILLS):
        process = start(tmp_path, slow_s=0.03)
        try:
            wait_until_more_than(tmp_path, batches(tmp_path), process)
            time.sleep(dice.random() * 0.1)  # before, in or after the next transaction, or between it and the deletion
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        write(2 * BATCH_LINES)
        spool.close()
    assert list((tmp_path / "spool").glob("*.seg")), "it was killed before it was through"
    finish(tmp_path)
    with sqlite3.connect(tmp_path / "sink.db") as database:
        ids = [row[0] for row in database.execute("SELECT id FROM run")]
    database.close()
    assert sorted(ids) == sorted(run_id(number) for number in range(written))
    assert not (tmp_path / "spool" / "set-aside.jsonl").exists()


def front_killed(home: Path, life: int, after_s: float) -> list[int]:
    """One life of a front; returns the runs that it said were kept."""
    module = "tests.infra.prefect_child.front_process"
    command = [sys.executable, "-m", module, str(home), str(life)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as front:
        assert front.stdout is not None
        said = [front.stdout.readline()]
        killer = threading.Timer(after_s, front.kill)
        killer.start()
        said += front.stdout.readlines()
        killer.join()
    return [int(line) for line in said if line.endswith(b"\n")]


@pytest.mark.slow
def test_fronts_killed_one_after_another_while_the_drainer_reads(tmp_path: Path) -> None:
    dice, kept = random.Random(7), set[str]()
    (tmp_path / "spool").mkdir()
    drainer = start(tmp_path, slow_s=0.001)
    try:
        for life in range(KILLS):
            kept |= {run_id(number) for number in front_killed(tmp_path, life, 0.05 + dice.random() * 0.2)}
        assert drainer.poll() is None
        assert batches(tmp_path), "it reads while they write"
    finally:
        drainer.kill()
        drainer.wait()
    Spool(tmp_path / "spool", max_bytes=64 << 20, segment_bytes=1 << 20)
    finish(tmp_path)
    with sqlite3.connect(tmp_path / "sink.db") as database:
        ids = {row[0] for row in database.execute("SELECT id FROM run")}
    database.close()
    assert kept <= ids
    assert len(ids - kept) <= KILLS, "at most one run of each life was not acknowledged yet"
    assert not (tmp_path / "spool" / "set-aside.jsonl").exists()


def finish(home: Path) -> None:
    """Let one drainer come to the end of the spool, then end it."""
    process = start(home, slow_s=0.0)
    try:
        ends_s = time.monotonic() + 60
        while list((home / "spool").glob("*.seg")):
            assert process.poll() is None
            assert time.monotonic() < ends_s
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
