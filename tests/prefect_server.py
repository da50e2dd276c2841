"""One real Prefect child for all tests of a session that need it; mark them `slow`.

Migrating an empty database costs 12 seconds of CPU: it is done once, and kept in the user's cache.
"""

import http.client
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from infra.prefect_child.spec import API_BASE, basic, prefect_auth, prefect_spec
from infra.recorder_status import RecorderStatus, read_status
from infra.records import Boot, RunRecord
from infra.security import new_internal_token
from infra.settings import FlowsSettings, Settings, cache_root, inherited_environment, load_settings
from tests.ports import free_port

FLOWS = ("chat", "completions", "responses", "embeddings", "rerank", "transcription", "batch")
POOLS = {"head": "coderai-head", "cpu": "coderai-card"}
_START_S = 110.0
_ROOT = Path(__file__).parents[1]


@dataclass
class PrefectServer:
    """A child on a home and a port of its own."""

    home: Path
    port: int
    settings: Settings
    internal_token: str = field(default_factory=new_internal_token)
    extra_environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The server's root, as `PrefectAddress.url` has it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def auth(self) -> str:
        """User and password: what a Prefect client is given as PREFECT_API_AUTH_STRING."""
        return prefect_auth(self.internal_token)

    @property
    def authorization(self) -> str:
        """The header's value, as `PrefectAddress.authorization` has it."""
        return basic(self.auth)

    @property
    def log(self) -> Path:
        """What the child wrote."""
        return self.home / "prefect.log"

    @property
    def status(self) -> RecorderStatus | None:
        """What the child's recorder says of itself, once it has said anything."""
        found = read_status(self.home)
        alive = self.process is not None and found is not None and found.pid == self.process.pid
        return found if alive else None

    def start(self) -> None:
        """Start the child and wait until its recorder is at work, or has said why it is not."""
        spec = prefect_spec(self.settings, self.internal_token)
        given = {name: value.replace("{port}", str(self.port)) for name, value in spec.env.items()}
        environment = inherited_environment() | given | self.extra_environment | spec.secret_env
        with self.log.open("ab") as log:
            argv = [part.replace("{port}", str(self.port)) for part in spec.argv]
            self.process = self._spawn(argv, environment, log)
        deadline = time.monotonic() + _START_S
        while self.status is None or self.status.state == "starting":
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.1)

    def stop(self, kind: int = signal.SIGTERM) -> int:
        """End the child with a signal; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(kind)
        code = self.process.wait(15)
        self.process = None
        return code

    def restart(self) -> None:
        """Stop and start again; the database and the port stay."""
        self.stop()
        self.start()

    def call(self, method: str, path: str, body: Any = None, *, authorized: bool = True) -> tuple[int, Any]:
        """Ask the API; `path` is below its base. Returns the status and the answer's JSON."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": self.authorization} if authorized else {})
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, f"{API_BASE}{path}", None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None

    def get(self, path: str) -> Any:
        """The answer to a GET that must succeed."""
        return self._succeed("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        """The answer to a POST that must succeed."""
        return self._succeed("POST", path, body)

    def record(self, *records: Boot | RunRecord) -> None:
        """Have the records written through the record route."""
        lines = [json.loads(record.line()) for record in records]
        assert self.post("/coderai/record", {"lines": lines}) == {"recorded": len(records)}

    def register(self, flows: Sequence[str] = FLOWS, pools: dict[str, str] | None = None) -> dict[str, UUID]:
        """Make the pools and, on the pool `head`, a deployment for each flow, named like it; returns their ids.

        What exists already is taken as it is.
        """
        for pool, kind in (pools or POOLS).items():
            status, answer = self.call("POST", "/work_pools/", {"name": pool, "type": kind})
            assert status in (201, 409), answer
        made = {}
        for flow in flows:
            flow_id = self.post("/flows/", {"name": flow})["id"]
            wanted = {"name": flow, "flow_id": flow_id, "work_pool_name": "head", "enforce_parameter_schema": False}
            made[flow] = UUID(self.post("/deployments/", wanted)["id"])
        return made

    def _succeed(self, method: str, path: str, body: Any) -> Any:
        status, answer = self.call(method, path, body)
        assert 200 <= status < 300, (status, answer, self.log.read_text()[-2000:])
        return answer

    @staticmethod
    def _spawn(argv: Sequence[str], environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv, env=environment, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


@contextmanager
def running_server(home: Path, port: int, database_url: str | None = None) -> Iterator[PrefectServer]:
    """A started child on an empty home; `database_url` is that of a PostgreSQL database instead of its SQLite file."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CODERAI_HOME", str(home))
        patch.delenv("CODERAI_CONFIG", raising=False)
        url = None if database_url is None else SecretStr(database_url)
        settings = load_settings(home=home, flows=FlowsSettings(database_url=url))
    server = PrefectServer(home, port, settings)
    cache = cache_root() / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    server.extra_environment["PREFECT_SERVER_UI_STATIC_DIRECTORY"] = str(cache / f"prefect-{version('prefect')}-ui")
    template = cache / f"prefect-{version('prefect')}.db"
    if database_url is None and template.exists():
        (home / "prefect").mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(template, home / "prefect" / "flows.db")
        (home / "prefect" / "flows.db").chmod(0o600)
        server.extra_environment["PREFECT_SERVER_REGISTER_BLOCKS_ON_START"] = "false"  # they are in the template
    try:
        server.start()
        if database_url is None and not template.exists():
            _keep(home / "prefect" / "flows.db", template)
        yield server
    finally:
        if server.process is not None:
            server.stop(signal.SIGKILL)


def _keep(database: Path, template: Path) -> None:
    """Copy the database, its write-ahead log included, whole or not at all."""
    draft = template.with_suffix(f".{os.getpid()}")
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(draft)) as target:
        source.backup(target)
    draft.replace(template)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """The session's child, with the pools and deployments of `PrefectServer.register`. Leave it running."""
    with running_server(tmp_path_factory.mktemp("prefect") / "home", free_port()) as server:
        server.register()
        yield server
