"""`coderai doctor` as a person runs it, and the checks that need models and engines."""

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from api.cli.doctor import check_engine, check_packaged, doctor, running_front
from infra.settings import LlamaSettings, Settings
from tests.tiny_gguf import write_tiny_llama
from tests.workers.packaged.fakes import PIECES, FakePackages, add_parts, in_place_model, joined_model
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


async def test_a_whole_packaged_model(tmp_path: Path) -> None:
    packages = FakePackages(tmp_path / "site")
    data = write_tiny_llama(tmp_path / "tiny.gguf").read_bytes()
    packages.add("placed", "weights.gguf", data)
    model = in_place_model(data)
    await prepare_one(model, tmp_path / "home", find=packages.find)
    check = check_packaged(model, tmp_path / "home", packages.find)
    assert check.status == "ok"
    assert "verified" in check.found
