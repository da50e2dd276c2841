"""Every check of an install: what it says when all is well, and what when it is not."""

import os
import socket
import sqlite3
from pathlib import Path

import pytest

from infra.database import open_database
from infra.doctor import Check, check_config, check_database, check_home, check_port, check_python, check_spool
from infra.migrate import migrate


def assert_mendable(check: Check, status: str, words: str) -> None:
    assert check.status == status, check
    assert words in check.found, check
    assert check.mend, check


def test_python() -> None:
    assert check_python((3, 11, 0), 64) == Check("python", "ok", "3.11.0, 64-bit")
    assert_mendable(check_python((3, 10, 9), 64), "problem", "3.10.9")
    assert_mendable(check_python((3, 12, 1), 32), "problem", "32-bit")


def test_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "first start" in check_home(home).found
    assert not home.exists()
    home.mkdir(mode=0o700)
    assert check_home(home).status in ("ok", "warning")  # a small disk is worth a warning
    home.chmod(0o755)
    assert_mendable(check_home(home), "warning", "others can look into it")
    assert check_home(home).mend == f"chmod 700 {home}"
    (tmp_path / "file").write_text("")
    assert_mendable(check_home(tmp_path / "file"), "problem", "cannot be written")


@pytest.mark.parametrize(("free_bytes", "status"), [(100 << 20, "problem"), (1 << 30, "warning"), (5 << 30, "ok")])
def test_home_on_a_small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, status: str) -> None:
    tmp_path.chmod(0o700)
    usage = type("Usage", (), {"free": free_bytes})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert check_home(tmp_path).status == status


def test_config(tmp_path: Path) -> None:
    path = tmp_path / "coderai.toml"
    assert check_config(path, None).status == "ok"
    path.write_text("[server]\nport = 1\n")
    path.chmod(0o644)
    assert check_config(path, None) == Check("settings", "ok", str(path))
    path.write_text("[servers]\nport = 1\n[zzz]\n")
    assert_mendable(check_config(path, None), "warning", "nothing reads servers, zzz")
    path.write_text("[server\n")
    assert_mendable(check_config(path, None), "problem", "cannot be read")
    path.write_bytes(b"\xff")
    assert_mendable(check_config(path, None), "problem", "cannot be read")
    assert_mendable(check_config(path, "setting 'server.port' cannot be used"), "problem", "server.port")


@pytest.mark.parametrize("secret", ['[models]\nhub_token = "x"', 'database_url = "postgresql://me:word@host/db"'])
def test_a_config_with_secrets_is_private(tmp_path: Path, secret: str) -> None:
    path = tmp_path / "coderai.toml"
    path.write_text(secret)
    path.chmod(0o644)
    assert_mendable(check_config(path, None), "warning", "holds secrets")
    path.chmod(0o600)
    assert check_config(path, None).status == "ok"


def test_database(tmp_path: Path) -> None:
    file = tmp_path / "coderai.db"
    url = f"sqlite:///{file}"
    assert "first start" in check_database(url, file).found
    assert not file.exists()
    open_database(url).close()
    assert_mendable(check_database(url, file), "warning", "not up to date")
    database = open_database(url)
    migrate(database)
    database.close()
    assert check_database(url, file).status == "ok"


def test_a_database_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "coderai.db"
    url = f"sqlite:///{file}"
    file.write_bytes(b"this is no database, and long enough to be read as one" * 50)
    assert_mendable(check_database(url, file), "problem", "no database")
    file.unlink()
    with sqlite3.connect(file) as connection:
        connection.execute("create table alembic_version (version_num text)")
        connection.execute("insert into alembic_version values ('from-the-future')")
    connection.close()
    assert_mendable(check_database(url, file), "problem", "does not know")
    assert_mendable(check_database("mysql://me:word@host/x", None), "problem", "database_url")
    assert "word" not in check_database("mysql://me:word@host/x", None).found


def test_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = check_port("127.0.0.1", port, None)
        assert_mendable(taken, "problem", f"127.0.0.1:{port} is taken by")
        own = check_port("127.0.0.1", port, os.getpid())
        assert own == Check("port", "ok", f"CoderAI is serving on 127.0.0.1:{port} (process {os.getpid()})")
    assert check_port("127.0.0.1", port, None).found == f"127.0.0.1:{port} is free"
    assert "each start" in check_port("127.0.0.1", 0, None).found
    assert_mendable(check_port("192.0.2.1", 80, None), "problem", "192.0.2.1:80")


def test_spool(tmp_path: Path) -> None:
    assert check_spool(tmp_path / "none", 1000).status == "ok"
    (tmp_path / "1.seg").write_bytes(bytes(800))
    (tmp_path / "0.seg").symlink_to(tmp_path / "gone")  # as one that goes between listing and looking
    assert check_spool(tmp_path, 1000) == Check("spool", "ok", "0.0 of 0 MiB")
    (tmp_path / "2.seg").write_bytes(bytes(1))
    assert_mendable(check_spool(tmp_path, 1000), "warning", "MiB")
