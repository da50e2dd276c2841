"""The product in a home of its own: started by its command, watched from outside, ended by a signal."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from openai import OpenAI

from infra.settings import inherited_environment
from tests.ports import free_port

COMMAND = str(Path(sys.executable).with_name("coderai"))
CHAT, CODER, EMBED = "smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct", "all-minilm-l6-v2"
T = TypeVar("T")
_KEY = re.compile(r"sk-coderai-[\w-]+")


class Product:
    """One install. `settings` are variables without their prefix, such as `SERVER__DRAIN_S`."""

    def __init__(self, home: Path, *, config: str = "", settings: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.port = free_port()
        self.key = ""
        self.log_path = home.with_name(f"{home.name}.log")
        kept = {name: value for name, value in inherited_environment().items() if not name.startswith("CODERAI_")}
        without_flows = {"FLOWS__SERVER": "off", "RECORD__SPOOL": "true"}
        named = {"HOME": str(home), "SERVER__PORT": str(self.port), **without_flows, **(settings or {})}
        self.environment = kept | {f"CODERAI_{name}": value for name, value in named.items()} | {"COLUMNS": "200"}
        self.process: subprocess.Popen[bytes] | None = None
        if config:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            home.joinpath("coderai.toml").write_text(config)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """All that `coderai serve` has written."""
        return self.log_path.read_text(errors="replace")

    def start(self, *, within_s: float = 60.0) -> float:
        """`coderai serve`, until /healthz answers; seconds that it took. The key is the one of the greeting."""
        began = time.monotonic()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [COMMAND, "serve"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )
        eventually(self._is_up, within_s, what=lambda: f"no answer: {self.log}")
        took_s = time.monotonic() - began
        if not self.key:
            found = eventually(lambda: _KEY.search(self.log), 10, what=lambda: f"no key in the greeting: {self.log}")
            assert found is not None
            self.key = found[0]
        return took_s

    def _is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log}"
        return self.healthy()

    def healthy(self) -> bool:
        """Whether /healthz answers."""
        try:
            return httpx2.get(f"{self.url}/healthz", timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False

    def stop(self, number: int = signal.SIGTERM, *, within_s: float = 40.0) -> int:
        """Signal the supervisor, wait for its end, see that nothing is left; its exit code."""
        assert self.process is not None
        family = self.processes()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(within_s)
            self.assert_nothing_left(family)
        finally:
            self.sweep(family)
        return code

    def assert_nothing_left(self, family: Mapping[int, str], within_s: float = 5.0) -> None:
        """Wait until no process of the install is left: none of `family`, none with its home in the environment."""
        eventually(
            lambda: not self.processes() and not still_there(family),
            within_s,
            what=lambda: f"left over: {self.processes()}, {still_there(family)}\n{self.log}",
        )

    def sweep(self, family: Mapping[int, str]) -> None:
        """End what a failed test left behind, so that it harms no other."""
        for pid in {**self.processes(), **still_there(family)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> dict[int, str]:
        """Command lines of all our processes, the supervisor's whole tree included, by process id."""
        wanted = f"CODERAI_HOME={self.home}".encode()
        ours = {pid for pid in _pids() if wanted in _read(pid, "environ").split(b"\0")}
        parents = {pid: _parent(pid) for pid in _pids()}
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in ours} - ours
            ours |= more
            grown = bool(more)
        ours.discard(os.getpid())
        commands = {pid: _command(pid) for pid in ours}
        return {pid: words for pid, words in commands.items() if words}

    def front_pid(self) -> int:
        return self._pid("api.front")

    def pid_of(self, module: str) -> int:
        """The process that runs a module of ours."""
        return self._pid(f" {module} ")

    def engine_pid(self, model: str) -> int:
        return self._pid(" workers.engine.", f'"name":"{model}"')

    def _pid(self, *words: str) -> int:
        found = [pid for pid, line in self.processes().items() if all(word in f"{line} " for word in words)]
        assert len(found) == 1, f"{words}: {found}"
        return found[0]

    def run(self, *arguments: str, stdin: str = "", within_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """`coderai ...` as a person runs it."""
        return subprocess.run(
            [COMMAND, *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )

    def told(self, *arguments: str, stdin: str = "") -> str:
        """What a command that succeeds prints."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"coderai {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    def new_key(self, name: str) -> str:
        """A user's key of that name, once the server knows it, which takes it a second or two."""
        key = self.told("tokens", "create", name, "--scope", "user").strip()
        address = f"{self.url}/v1/models"
        eventually(
            lambda: httpx2.get(address, headers=self.headers(key), timeout=10).status_code == 200,
            5,
            what=lambda: "a new key is not known",
        )
        return key

    def client(self, *, key: str | None = None, timeout_s: float = 60.0) -> OpenAI:
        """OpenAI's client, which must not hide an error by asking again."""
        return OpenAI(base_url=f"{self.url}/v1", api_key=key or self.key, max_retries=0, timeout=timeout_s)

    def post(self, path: str, body: object, *, key: str | None = None, timeout_s: float = 60.0) -> httpx2.Response:
        return httpx2.post(f"{self.url}{path}", json=body, headers=self.headers(key), timeout=timeout_s)

    def get(self, path: str, *, key: str | None = None) -> Any:
        """The JSON answer of a GET that must succeed."""
        answer = httpx2.get(f"{self.url}{path}", headers=self.headers(key), timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def headers(self, key: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key or self.key}"}

    def load(self, model: str) -> None:
        """Have a model in memory."""
        answer = self.post("/admin/api/model-load", {"model": model})
        assert answer.status_code == 200, answer.text

    def engines(self) -> dict[str, dict[str, Any]]:
        """The engines as an operator sees them, by model."""
        return {engine["model"]: engine for engine in self.get("/admin/api/engines")["engines"]}


def eventually(ask: Callable[[], T], within_s: float, *, what: Callable[[], str], pause_s: float = 0.05) -> T:
    """The first true answer; fails with `what` when there is none in time."""
    give_up = time.monotonic() + within_s
    while not (answer := ask()):
        assert time.monotonic() < give_up, f"not within {within_s:g} s: {what()}"
        time.sleep(pause_s)
    return answer


def still_there(family: Mapping[int, str]) -> dict[int, str]:
    """Which of these processes still run as what they were."""
    return {pid: line for pid, line in family.items() if _command(pid) == line}


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except (OSError, ProcessLookupError):
        return b""


def _command(pid: int) -> str:
    """Empty for a process that is gone, or dead and not yet reaped."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _parent(pid: int) -> int:
    after_name = _read(pid, "stat").rpartition(b")")[2].split()
    return int(after_name[1]) if len(after_name) > 1 else 0
