"""Databases for tests: SQLite always, PostgreSQL where its server program is installed."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlmodel import SQLModel, delete

from infra.database import Database, open_database
from infra.migrate import migrate
from tests.ports import free_port


def postgres_bin() -> Path | None:
    """The folder with PostgreSQL's programs, if there is one."""
    found = shutil.which("initdb")
    candidates = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(candidates) if (folder / "initdb").exists()), None)


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server of our own in a temporary folder; gives its URL."""
    programs = postgres_bin()
    if programs is None:
        pytest.skip("PostgreSQL's programs (initdb, postgres) are not installed")
    with TemporaryDirectory(prefix="coderai-postgres-", ignore_cleanup_errors=True) as folder:
        user = _server_user(Path(folder))
        data = str(Path(folder) / "data")
        subprocess.run(
            [str(programs / "initdb"), "-D", data, "-U", "coderai", "--auth=trust", "--no-sync", "--encoding=UTF8"],
            check=True, capture_output=True, user=user, group=user, cwd=folder,
        )  # fmt: skip
        port = free_port()
        with subprocess.Popen(
            [str(programs / "postgres"), "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user, group=user, cwd=folder,
        ) as server:  # fmt: skip
            try:
                _wait_for(port)
                yield f"postgresql+psycopg://coderai@127.0.0.1:{port}/postgres"
            finally:
                server.send_signal(signal.SIGINT)  # ends its sessions at once; SIGTERM would wait for them
                server.wait(20)


def _server_user(folder: Path) -> str | None:
    """PostgreSQL refuses to run as root: then it becomes the user `postgres`, or `nobody`."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return user.pw_name


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """A server of our own, for the tests of a module."""
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """One of each kind, up to date and empty."""
    file = f"sqlite:///{tmp_path / 'coderai.db'}"
    opened = open_database(request.getfixturevalue("postgres_url") if request.param == "postgres" else file)
    migrate(opened)
    with opened.write() as session:
        for table in reversed(SQLModel.metadata.sorted_tables):
            session.connection().execute(delete(table))
    yield opened
    opened.close()
