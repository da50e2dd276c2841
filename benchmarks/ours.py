"""This product as a person starts it: the console command, a home of its own, a key, models by command or by file."""

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson
import psutil

from benchmarks.exchange import Answer, post
from benchmarks.processes import Program, StartFailed, clean_environment, free_port

COMMAND = str(Path(sys.executable).with_name("coderai"))
_FRONT = "api.front"


class Install:
    """A whole install in a temporary folder; it serves inside the `with` block.

    `settings` are the environment's names without their prefix, e.g. `{"MODELS__PACKAGED": "false"}`.
    """

    def __init__(self, home: Path, settings: dict[str, str] | None = None, config: str = "") -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.home = home
        self.port = free_port()
        named = {"HOME": str(home), "SERVER__PORT": str(self.port), **(settings or {})}
        self._env = clean_environment(**{f"CODERAI_{name}": value for name, value in named.items()})
        if config:
            home.joinpath("coderai.toml").write_text(config)
        self._program: Program | None = None

    @property
    def environment(self) -> dict[str, str]:
        """In which `coderai ...` means this install."""
        return dict(self._env)

    def command(self, *arguments: str) -> str:
        """Run `coderai ...` and return what it printed.

        Raises:
            StartFailed: it failed; the message holds its own words.
        """
        done = subprocess.run(
            [COMMAND, *arguments], env=self._env, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise StartFailed(f"coderai {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout

    def create_key(self, name: str, scope: str = "user") -> str:
        """Make an API key; the command prints the key alone."""
        return self.command("tokens", "create", name, "--scope", scope).strip()

    def __enter__(self) -> Self:
        self._program = Program([COMMAND, "serve"], self.home / "serve.log", self._env)
        try:
            self._program.wait_for(self.port, "/healthz", within_s=120)
        except BaseException:
            self._program.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._program is not None:
            self._program.stop()

    @property
    def pid(self) -> int:
        """The supervisor."""
        assert self._program is not None, "the install is not started"
        return self._program.pid

    def front_pid(self) -> int:
        """The supervisor's child that answers clients.

        Raises:
            StartFailed: there is none.
        """
        return self.child_pid(_FRONT)

    def child_pid(self, module: str) -> int:
        """The supervisor's child that runs a module of ours.

        Raises:
            StartFailed: there is none.
        """
        for child in psutil.Process(self.pid).children():
            if module in child.cmdline():
                return child.pid
        raise StartFailed(f"no child of the supervisor runs {module}")

    def wait_until_served(self, model: str, key: str, within_s: float = 120.0) -> None:
        """Return once a short chat with the model succeeds.

        Raises:
            StartFailed: it never did; the message holds the last answer.
        """
        give_up = time.monotonic() + within_s
        answer = Answer(0, b"")
        while time.monotonic() < give_up:
            request = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
            answer = post(self.port, "/v1/chat/completions", orjson.dumps(request), key)
            if answer.status == 200:
                return
            time.sleep(0.5)
        raise StartFailed(f"{model} was not served: {answer.status} {answer.text[:500]}")
