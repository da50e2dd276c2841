"""piper's own environment: made once below the cache folder, from wheels that are pinned by version and sha256.

Whole or not at all: it is made beside its place, tried, and only then given its name. What was fetched stays when an
installation is cut off, so that the next one goes on from there; a second one waits for the first.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, Literal

from infra.errors import EngineFailed, NotInstalled
from infra.files import make_private_folder, require_space
from infra.settings import cache_root, inherited_environment

COMMAND: Final = "coderai engines install piper"
REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
_NEEDED_BYTES: Final = 600 << 20
_TRIAL: Final = "import piper, onnx, onnxruntime; piper.PiperVoice"
_TIME_LIMIT_S: Final = 900.0
_ERROR_LINES: Final = 8

Stage = Literal["wait", "environment", "download", "install", "verify", "done"]
Report = Callable[[Stage], None]


def piper_folder(root: Path | None = None) -> Path:
    """Where the environment of this Python and these versions is, or would be."""
    told = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    python = f"{sys.implementation.name}{sys.version_info.major}.{sys.version_info.minor}"
    return (root or cache_root()) / "piper" / f"{python}-{sys.platform}-{platform.machine()}-{told}"


def piper_python(root: Path | None = None) -> Path | None:
    """The Python of piper's environment; None where it is not installed."""
    python = piper_folder(root) / "bin" / "python"
    return python if python.exists() else None


def require_piper(root: Path | None = None) -> Path:
    """The same.

    Raises:
        NotInstalled: it is not installed; the message has the command that installs it.
    """
    python = piper_python(root)
    if python is None:
        raise NotInstalled(
            f"piper, which speaks with this voice, is not installed here: run `{COMMAND}`", param="model"
        )
    return python


def install(report: Report, root: Path | None = None) -> Path:
    """Install it, or find it installed; returns its Python. Blocks, for a quarter of a minute or so.

    Raises:
        NotInstalled: this Python cannot make environments, or there are no wheels for this machine.
        DiskFull: there is no room.
        EngineFailed: a step failed; the message has its last lines.
    """
    folder = piper_folder(root)
    make_private_folder(folder.parent)
    with _alone(folder.with_name(f"{folder.name}.lock"), report):
        if not (folder / "bin" / "python").exists():
            require_space(folder.parent, _NEEDED_BYTES)
            _make(folder, report)
    report("done")
    return folder / "bin" / "python"


def _make(folder: Path, report: Report) -> None:
    wheels = make_private_folder(folder.with_name(f"{folder.name}.wheels"))
    for leftover in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        made = Path(scratch) / "environment"
        report("environment")
        try:
            _call(sys.executable, "-m", "venv", "--without-pip", str(made))
        except EngineFailed as error:
            raise NotInstalled(
                f"piper needs Python's venv module (Debian, Ubuntu: `apt install python3-venv`): {error}"
            ) from error
        python = made / "bin" / "python"
        locked = ("--require-hashes", "--only-binary", ":all:", "-r", str(REQUIREMENTS))
        report("download")
        _call(*_pip("download"), "--dest", str(wheels), *locked)
        report("install")
        _call(
            *_pip("--python", str(python), "install"), "--no-index", "--no-deps", "--find-links", str(wheels), *locked
        )
        report("verify")
        _call(str(python), "-I", "-c", _TRIAL)
        made.replace(folder)
    shutil.rmtree(wheels, ignore_errors=True)


def _pip(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words)


def _call(*argv: str) -> None:
    """Run a step in a process group of its own, which does not outlive it.

    Raises:
        EngineFailed: it did not end well.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(), start_new_session=True
        )
        try:
            code = process.wait(_TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code != 0:
            raise EngineFailed(f"piper could not be installed (exit code {code}). It ends:\n{_end_of(log)}")


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").strip().splitlines()[-_ERROR_LINES:])


@contextlib.contextmanager
def _alone(path: Path, report: Report) -> Iterator[None]:
    """Hold a lock that ends with this process, whatever ends it."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("wait")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _environment() -> dict[str, str]:
    """The trial imports onnxruntime, whose official builds report to Microsoft unless they are told not to."""
    return inherited_environment() | {"ORT_DISABLE_TELEMETRY": "1"}
