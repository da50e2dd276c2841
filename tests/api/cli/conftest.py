"""The command line as a person uses it: a home of its own, and what a command said."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from api.cli.main import app
from infra.errors import CoderAIError
from infra.listen import RUN_FILE
from tests.api.conftest import TOKEN, Front

Run = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The install's directory, not made yet; no packaged models in it."""
    folder = tmp_path / "home"
    monkeypatch.setenv("CODERAI_HOME", str(folder))
    monkeypatch.setenv("CODERAI_MODELS__PACKAGED", "false")
    monkeypatch.setenv("COLUMNS", "250")
    return folder


@pytest.fixture
def run(home: Path) -> Run:
    """Run `coderai` with these words; gives what it printed on standard output. Raises what it refused with."""

    def coderai(*words: str, stdin: str | None = None) -> str:
        result = CliRunner().invoke(app, list(words), input=stdin)
        if isinstance(result.exception, CoderAIError):
            raise result.exception
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    return coderai


def owner_of(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command line the owner's of this running front, as the front itself does at its start."""
    monkeypatch.setenv("CODERAI_HOME", str(front.settings.home))
    path = front.settings.at(*RUN_FILE)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(orjson.dumps({"url": front.url, "pid": 1, "token": TOKEN}))


async def beside(*words: str, stdin: str | None = None) -> Result:
    """Run `coderai` in a thread, beside the front on this loop."""
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, list(words), input=stdin))
