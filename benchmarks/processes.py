"""Starting a program on a loopback port, waiting until it answers, and ending it with everything below it."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from infra.settings import inherited_environment

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""


class StartFailed(Exception):
    """A program ended, or did not answer in time; the message ends with its last words."""


def cache_dir(*parts: str) -> Path:
    """A folder below `${XDG_CACHE_HOME:-~/.cache}/coderai`, made if it is absent."""
    base = inherited_environment().get("XDG_CACHE_HOME") or "~/.cache"
    path = Path(base).expanduser().joinpath("coderai", *parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def free_port() -> int:
    """A port on loopback that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def clean_environment(**extra: str) -> dict[str, str]:
    """Our environment without any `CODERAI_` setting of the person who runs this, plus `extra`."""
    kept = {name: value for name, value in inherited_environment().items() if not name.startswith("CODERAI_")}
    return {**kept, **extra}


def module(name: str, *arguments: str) -> list[str]:
    """The command line that runs one of our modules."""
    return [sys.executable, "-m", name, *arguments]


class Program:
    """A child in a session of its own, with its output in a file; ends with the `with` block."""

    def __init__(self, argv: list[str], log: Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> None:
        self._log_path = log
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=env or clean_environment(),
            cwd=cwd,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def last_words(self, lines: int = 15) -> str:
        """The end of what it has written."""
        return "\n".join(self._log_path.read_text(errors="replace").splitlines()[-lines:])

    def wait_for(self, port: int, path: str, within_s: float) -> None:
        """Return once `GET path` answers 200.

        Raises:
            StartFailed: it ended first, or the time is over.
        """
        give_up = time.monotonic() + within_s
        while time.monotonic() < give_up:
            if self._process.poll() is not None:
                raise StartFailed(f"ended with code {self._process.returncode}: {self.last_words()}")
            if answers(port, path):
                return
            time.sleep(0.1)
        raise StartFailed(f"gave no answer at {path} within {within_s:.0f} s: {self.last_words()}")

    def stop(self, grace_s: float = 15.0) -> None:
        """SIGTERM, and SIGKILL for whatever of its tree is left after the grace."""
        family: list[psutil.Process] = []
        if self._process.poll() is None:
            family = psutil.Process(self.pid).children(recursive=True)
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        _, alive = psutil.wait_procs(family, timeout=1.0)
        for process in alive:
            process.kill()
        self._log.close()


def answers(port: int, path: str) -> bool:
    """Whether `GET path` on that port gives 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def listener(root_pid: int, port: int) -> int:
    """The process of a tree that listens on a port; the root itself where none is found."""
    root = psutil.Process(root_pid)
    for process in [*reversed(root.children(recursive=True)), root]:
        try:
            sockets = process.net_connections(kind="tcp")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(each.status == psutil.CONN_LISTEN and each.laddr[1] == port for each in sockets):
            return process.pid
    return root_pid
