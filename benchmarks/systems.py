"""Everything that is measured side by side: each is started once, on loopback, in front of the same upstream."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import orjson
import psutil

from benchmarks.load import Case, Measured
from benchmarks.ours import Install
from benchmarks.peers import PEERS, NotInstalled, installed
from benchmarks.processes import ROOT, Program, StartFailed, clean_environment, free_port, listener, module
from benchmarks.upstream import MODEL

DIRECT, BARE, OURS = "direct", "bare", "ours"
NAMES = (DIRECT, BARE, OURS, *(peer.name for peer in PEERS))


@dataclass(frozen=True)
class System:
    """One thing that answers chats. `front_pid` is the process whose CPU counts; `root_pid` heads its install."""

    name: str
    port: int
    api_key: str
    root_pid: int
    front_pid: int


@dataclass(frozen=True)
class Absent:
    """A system that could not be started, and why."""

    name: str
    reason: str


def start(name: str, upstream: Program, upstream_port: int, stack: ExitStack) -> System | Absent:
    """Start one system for as long as `stack` is open."""
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coderai-bench-")))
    try:
        if name == DIRECT:
            return System(name, upstream_port, "", upstream.pid, upstream.pid)
        if name == BARE:
            return _start_bare(upstream_port, scratch, stack)
        if name == OURS:
            return start_ours(upstream_port, scratch, stack)
        return _start_peer(name, upstream_port, scratch, stack)
    except NotInstalled as error:
        return Absent(name, f"did not install: {error}")
    except (StartFailed, OSError, psutil.Error) as error:
        return Absent(name, f"did not start: {error}")


def _start_bare(upstream_port: int, scratch: Path, stack: ExitStack) -> System:
    port = free_port()
    argv = module("benchmarks.bare_proxy", str(port), f"http://127.0.0.1:{upstream_port}")
    proxy = stack.enter_context(Program(argv, scratch / "log"))
    proxy.wait_for(port, "/health", within_s=20)
    return System(BARE, port, "", proxy.pid, proxy.pid)


def start_ours(upstream_port: int, scratch: Path, stack: ExitStack, settings: dict[str, str] | None = None) -> System:
    """The front as always, its spool included; what happens behind it is measured by `benchmarks.recording`."""
    alone = {"MODELS__PACKAGED": "false", "FLOWS__SERVER": "off", "RECORD__SPOOL": "true"}
    install = Install(scratch / "home", alone | (settings or {}))
    url = f"http://127.0.0.1:{upstream_port}"
    slots = ("--max-instances", "64")  # the upstream has no limit of its own; the default of 4 would measure the queue
    install.command("models", "add", MODEL, "--service-url", url, "--served-model", MODEL, *slots)
    key = install.create_key("bench")
    stack.enter_context(install)
    install.wait_until_served(MODEL, key)
    return System(OURS, install.port, key, install.pid, install.front_pid())


def _start_peer(name: str, upstream_port: int, scratch: Path, stack: ExitStack) -> System:
    peer = next(each for each in PEERS if each.name == name)
    port = free_port()
    launch = peer.launch(installed(peer), port, upstream_port, scratch)
    program = stack.enter_context(Program(launch.argv, scratch / "log", launch.env, cwd=scratch))
    program.wait_for(port, peer.health, peer.start_within_s)
    return System(name, port, launch.api_key, program.pid, listener(program.pid, port))


@contextmanager
def running_upstream(interval_ms: float) -> Iterator[tuple[Program, int]]:
    """The fixed-answer upstream and its port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="coderai-bench-") as scratch:
        argv = module("benchmarks.upstream", str(port), str(interval_ms))
        with Program(argv, Path(scratch) / "log") as program:
            program.wait_for(port, "/health", within_s=20)
            yield program, port


class LoadGenerator:
    """The load generator's process; `drive` runs one case in it."""

    def __init__(self) -> None:
        self._process = psutil.Popen(
            module("benchmarks.load"), stdin=-1, stdout=-1, env=clean_environment(), cwd=ROOT, start_new_session=True
        )

    def __enter__(self) -> "LoadGenerator":
        return self

    def __exit__(self, *unused: object) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def drive(self, case: Case) -> Measured:
        """Run one case to its end.

        Raises:
            StartFailed: the generator itself died.
        """
        source: IO[bytes] = self._process.stdout
        self._process.stdin.write(orjson.dumps(asdict(case)) + b"\n")
        self._process.stdin.flush()
        line = source.readline()
        if not line:
            raise StartFailed("the load generator ended; its traceback stands above")
        return Measured(**orjson.loads(line))
