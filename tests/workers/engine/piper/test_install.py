"""piper's environment: whole or not at all, with programs in pip's place; what is pinned, is pinned with its hashes."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from infra.errors import EngineFailed, NotInstalled
from tests.workers.engine.piper.voices import the_piper
from workers.engine.piper import install as module
from workers.engine.piper.install import REQUIREMENTS, Stage, install, piper_folder, piper_python, require_piper


class Steps:
    """Stands in for running programs: makes what each would leave, fails at `broken`."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.calls: list[str] = []
        self.wheels_seen: list[bool] = []

    def __call__(self, *argv: str) -> None:
        name = next(word for word in ("venv", "download", "install", "-c") if word in argv)
        self.calls.append(name)
        if name == self.broken:
            raise EngineFailed("it ends so")
        if name == "venv":
            (Path(argv[-1]) / "bin").mkdir(parents=True)
            (Path(argv[-1]) / "bin" / "python").touch()
        if name == "download":
            wheel = Path(argv[argv.index("--dest") + 1]) / "a.whl"
            self.wheels_seen.append(wheel.exists())
            wheel.touch()
            assert "--require-hashes" in argv
            assert "--only-binary" in argv
        if name == "install":
            assert "--no-index" in argv
            assert "--require-hashes" in argv


def use(monkeypatch: pytest.MonkeyPatch, steps: Steps) -> Steps:
    monkeypatch.setattr(module, "_call", steps)
    return steps


def test_it_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, stages = use(monkeypatch, Steps()), list[Stage]()
    python = install(stages.append, tmp_path)
    assert python == piper_python(tmp_path) == require_piper(tmp_path)
    assert steps.calls == ["venv", "download", "install", "-c"]
    assert stages == ["environment", "download", "install", "verify", "done"]
    assert install(stages.append, tmp_path) == python
    assert len(steps.calls) == 4
    assert sorted(path.name for path in (tmp_path / "piper").iterdir()) == [
        piper_folder(tmp_path).name,
        f"{piper_folder(tmp_path).name}.lock",
    ]


@pytest.mark.parametrize("broken", ["venv", "download", "install", "-c"])
def test_what_fails_leaves_nothing_but_what_was_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    use(monkeypatch, Steps(broken))
    with pytest.raises(NotInstalled if broken == "venv" else EngineFailed, match="it ends so"):
        install(lambda _stage: None, tmp_path)
    assert piper_python(tmp_path) is None
    with pytest.raises(NotInstalled, match="coderai engines install piper"):
        require_piper(tmp_path)
    left = {path.name.removeprefix(piper_folder(tmp_path).name) for path in (tmp_path / "piper").iterdir()}
    assert left == {".lock", ".wheels"}
    steps = use(monkeypatch, Steps())
    assert install(lambda _stage: None, tmp_path).exists()
    assert steps.wheels_seen == [broken in ("install", "-c")]


def test_a_second_one_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, waits = Steps(), threading.Event()
    stages: list[Stage] = []

    def told(stage: Stage) -> None:
        stages.append(stage)
        waits.set()

    def slowly(*argv: str) -> None:
        if "venv" in argv:
            second.start()
            assert waits.wait(10)
        steps(*argv)

    second = threading.Thread(target=install, args=(told, tmp_path))
    monkeypatch.setattr(module, "_call", slowly)
    install(lambda _stage: None, tmp_path)
    second.join(10)
    assert stages == ["wait", "done"]
    assert steps.calls.count("venv") == 1


def test_a_step_that_fails_says_how_it_ended() -> None:
    with pytest.raises(EngineFailed, match=r"exit code 3(.|\n)*no such wheel"):
        module._call(sys.executable, "-c", "print('no such wheel'); raise SystemExit(3)")


def test_everything_is_pinned_with_hashes() -> None:
    text = REQUIREMENTS.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+(\s+--hash=sha256:[0-9a-f]{64})+", line.strip()) for line in lines)
    names = {line.split("==")[0] for line in lines}
    assert {"piper-tts", "onnxruntime", "onnx", "numpy"} <= names


@pytest.mark.slow
def test_what_is_installed_is_what_is_pinned() -> None:
    """Nothing of it is in our own environment's way, and nothing of ours in its."""
    code = "import importlib.metadata as m; print(*sorted(d.name + '==' + d.version for d in m.distributions()))"
    done = subprocess.run([the_piper(), "-I", "-c", code], capture_output=True, text=True, check=True)
    found = {each.lower().replace("_", "-") for each in done.stdout.split()}
    pinned = set(re.findall(r"^([\w-]+==[\w.]+)", REQUIREMENTS.read_text(), re.MULTILINE))
    assert found == pinned
