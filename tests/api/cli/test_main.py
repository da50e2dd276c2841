"""The command line's root: what the operator can mend is one line, and every command has its help."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import api.cli.main
from api.cli.main import app, main
from infra.errors import InvalidRequest

COMMANDS = ("serve", "models", "tokens", "plan", "engines", "usage", "doctor")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_help(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_an_error_is_one_line_on_stderr(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "api.cli.main", "models", "show", "nope"],
        env={"CODERAI_HOME": str(home), "CODERAI_MODELS__PACKAGED": "false"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: Model 'nope' is not available, see GET /v1/models\n"


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    broken = typer.Typer()

    @broken.command()
    def run() -> None:
        raise error

    def go() -> None:
        broken(args=[], standalone_mode=False)

    monkeypatch.setattr(api.cli.main, "app", go)


def test_brackets_in_a_message_are_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"[[model]] 1 cannot be used [/red]: {'x' * 300}; look in /etc/coderai.toml"
    failing(monkeypatch, InvalidRequest(words))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capsys.readouterr().err == f"error: {words}\n"


def test_ctrl_c_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(api.cli.main, "app", _interrupted)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == ""


def _interrupted() -> None:
    raise KeyboardInterrupt
