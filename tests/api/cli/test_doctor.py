"""`coderai doctor` as a person runs it, and the checks that need models and engines."""

import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import typer
from typer.testing import CliRunner

from api.cli.doctor import (
    check_engine,
    check_packaged,
    check_piper,
    doctor,
    process_checks,
    read_dropped,
    recorder_checks,
    running_front,
)
from infra.settings import LlamaSettings, Settings
from tests.tiny_gguf import write_tiny_llama
from tests.workers.packaged.fakes import PIECES, FakePackages, add_parts, in_place_model, joined_model
from workers.engine.piper.install import piper_folder
from workers.packaged.ready import prepare_one

PRIVATE_PORT = "CODERAI_SERVER__PORT"


@pytest.fixture
def app() -> typer.Typer:
    command = typer.Typer()
    command.command()(doctor)
    return command


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("CODERAI_HOME", str(folder))
    monkeypatch.setenv(PRIVATE_PORT, "0")
    monkeypatch.setenv("CODERAI_MODELS__PACKAGED", "false")
    return folder


def test_a_sound_machine_as_json(app: typer.Typer, home: Path) -> None:
    result = CliRunner().invoke(app, ["--json"])
    checks = {check["name"]: check for check in json.loads(result.stdout)}
    assert {"python", "settings", "home", "database", "port", "llama.cpp", "memory", "card cpu"} <= set(checks)
    assert checks["llama.cpp"]["status"] == "ok"
    assert checks["python"]["status"] == "ok"
    problems = [check for check in checks.values() if check["status"] == "problem"]
    assert result.exit_code == (1 if problems else 0)
    assert list(home.iterdir()) == []


def test_a_problem_is_in_the_table_and_in_the_exit_code(
    app: typer.Typer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODERAI_LLAMA__SERVER_BIN", str(home / "no-such-server"))
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 1
    assert "problem" in result.stdout
    assert "llama.server_bin" in result.stdout.replace("\n", "")


def test_unusable_settings_still_leave_the_machine_checked(
    app: typer.Typer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PRIVATE_PORT, "many")
    result = CliRunner().invoke(app, ["--json"])
    checks = {check["name"]: check for check in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert "server.port" in checks["settings"]["found"]
    assert "memory" in checks
    assert "database" not in checks


def test_the_running_front_is_known_by_its_file(home: Path) -> None:
    settings = Settings(home=home)
    assert running_front(settings) is None
    (home / "run").mkdir()
    for text, pid in (("{", None), ("[]", None), ('{"pid": "7"}', None), ('{"pid": 7}', 7)):
        (home / "run" / "front.json").write_text(text)
        assert running_front(settings) == pid


def test_the_engine_in_the_wheel() -> None:
    check = check_engine(LlamaSettings())
    assert check.status == "ok", check
    assert "xllamacpp" in check.found


def test_a_server_of_the_users_own(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho '-m,    --model FNAME   the model'\necho '--port PORT   the port'\n")
    program.chmod(0o755)
    assert check_engine(LlamaSettings(server_bin=program)).status == "ok"
    program.write_text("#!/bin/sh\necho hello\n")
    assert check_engine(LlamaSettings(server_bin=program)).status == "problem"
    os.unlink(program)
    check = check_engine(LlamaSettings(server_bin=program))
    assert check.status == "problem"
    assert check.mend


async def test_packaged_models(tmp_path: Path) -> None:
    packages, home = FakePackages(tmp_path / "site"), tmp_path / "home"
    model = joined_model()
    missing = check_packaged(model, home, packages.find)
    assert missing.status == "warning"
    assert "part_a, part_b, part_c" in missing.found
    add_parts(packages)
    assert "first start" in check_packaged(model, home, packages.find).found
    await prepare_one(model, home, find=packages.find)
    damaged = check_packaged(model, home, packages.find)  # the parts join to no real GGUF
    assert (damaged.status, b"".join(PIECES)[:4]) == ("problem", b"GGUF")
    assert damaged.mend


def test_piper_is_there_or_the_command_is_named(tmp_path: Path) -> None:
    missing = check_piper(tmp_path)
    assert (missing.status, missing.mend) == ("warning", "coderai engines install piper")
    python = piper_folder(tmp_path) / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert check_piper(tmp_path).status == "ok"


async def test_a_whole_packaged_model(tmp_path: Path) -> None:
    packages = FakePackages(tmp_path / "site")
    data = write_tiny_llama(tmp_path / "tiny.gguf").read_bytes()
    packages.add("placed", "weights.gguf", data)
    model = in_place_model(data)
    await prepare_one(model, tmp_path / "home", find=packages.find)
    check = check_packaged(model, tmp_path / "home", packages.find)
    assert check.status == "ok"
    assert "verified" in check.found


def test_without_a_server_the_recorder_is_fine(app: typer.Typer, home: Path) -> None:
    checks = {check["name"]: check for check in json.loads(CliRunner().invoke(app, ["--json"]).stdout)}
    assert (checks["recorder"]["status"], checks["set aside"]["status"]) == ("ok", "ok")
    assert "dropped" not in checks


def test_a_recorder_that_is_switched_off_is_not_looked_for(
    app: typer.Typer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODERAI_FLOWS__SERVER", "off")
    checks = {check["name"] for check in json.loads(CliRunner().invoke(app, ["--json"]).stdout)}
    assert not checks & {"recorder", "set aside", "dropped", "spool"}


class OneFront(BaseHTTPRequestHandler):
    """A front that only its owner may ask."""

    pages: ClassVar[dict[str, bytes]] = {
        "/metrics": b'coderai_spool_dropped{what="detail"} 3.0\ncoderai_spool_dropped{what="run"} 2.0\n'
    }

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == "Bearer secret" and self.path in self.pages
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(self.pages[self.path] if known else b"")

    def log_message(self, *_: object) -> None:
        """A test's output is not the place."""


@pytest.mark.parametrize(("token", "words"), [("secret", "2 runs, and the detail of 3 more"), ("other", "HTTP 401")])
def test_what_was_dropped_is_asked_of_the_running_front(home: Path, token: str, words: str) -> None:
    with HTTPServer(("127.0.0.1", 0), OneFront) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        (home / "run").mkdir()
        run = {"url": f"http://127.0.0.1:{server.server_port}", "pid": os.getpid(), "token": token}
        (home / "run" / "front.json").write_text(json.dumps(run))
        checks = {check.name: check for check in recorder_checks(Settings(home=home))}
        thread.join()
    assert checks["recorder"].status == "problem"  # nobody has written its status
    assert checks["dropped"].status == "warning"
    assert words in checks["dropped"].found


def test_a_front_that_hangs_does_not_hang_the_doctor(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.cli.doctor.FRONT_LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        (home / "run").mkdir()
        run = {"url": f"http://127.0.0.1:{deaf.getsockname()[1]}", "pid": os.getpid(), "token": "x"}
        (home / "run" / "front.json").write_text(json.dumps(run))
        settings = Settings(home=home)
        checks = {check.name: check for check in (*recorder_checks(settings), *process_checks(settings))}
    assert checks["dropped"].status == "warning"
    assert checks["processes"].status == "problem"


def test_processes_are_asked_of_the_running_front(home: Path) -> None:
    assert list(process_checks(Settings(home=home))) == []
    worker = {"name": "worker", "status": "quarantined", "pid": None, "incarnation": 5, "reason": "killed by SIGSEGV"}
    with HTTPServer(("127.0.0.1", 0), OneFront) as server:
        OneFront.pages["/admin/api/processes"] = json.dumps({"processes": [worker]}).encode()
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        (home / "run").mkdir()
        run = {"url": f"http://127.0.0.1:{server.server_port}", "pid": os.getpid(), "token": "secret"}
        (home / "run" / "front.json").write_text(json.dumps(run))
        (check,) = process_checks(Settings(home=home))
        thread.join()
    assert (check.status, check.found) == ("problem", "worker was given up: killed by SIGSEGV")


@pytest.mark.parametrize("page", ["", "other_gauge 1\n"])
def test_a_page_without_the_gauge(page: str) -> None:
    assert read_dropped(page) == (0, 0)
