"""`coderai engines list` against a running front. (The build is tested in tests/workers/engine/test_build.py.)"""

from pathlib import Path

import pytest

from infra.errors import InvalidRequest
from tests.api.cli.conftest import Run, beside, owner_of
from tests.api.conftest import StartFront
from workers.engine.piper.install import piper_folder


async def test_cards_and_engines_of_the_running_server(
    start_front: StartFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    front = await start_front()
    owner_of(front, monkeypatch)
    await front.post("/admin/api/model-load", {"model": "tiny"}, "admin")
    front.services.fleet.engines()[0].reason = "waits for [/red] brackets"
    shown = await beside("engines", "list")
    assert shown.exit_code == 0, (shown.output, shown.exception)
    (pool,) = [line for line in shown.stdout.splitlines() if "│ cpu " in line and "GiB" not in line][:1]
    assert pool.count("│") >= 5
    (engine,) = [line for line in shown.stdout.splitlines() if "cpu/tiny" in line]
    assert "ready" in engine
    assert "waits for [/red] brackets" in engine


def test_piper_is_installed_with_one_command(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is installed already nothing is done, and its place is said."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    python = piper_folder() / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert str(piper_folder()) in run("engines", "install", "piper").replace("\n", "")


def test_without_a_server(run: Run) -> None:
    with pytest.raises(InvalidRequest, match="coderai serve"):
        run("engines", "list")
