"""Bringing the client's test suite here: its source at a fixed hash, and a venv of its own to run it in.

Both stay below `${XDG_CACHE_HOME:-~/.cache}/coderai/conformance`, so that a second run needs no network.
"""

import fcntl
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks.processes import cache_dir, clean_environment
from tests.conformance.counter import LEDGER_PATH
from tests.conformance.judge import CaseResult

VERSION = "3.51.0"
SHA256 = "1cc9b80eb0f1dc15fa45fbc122ba2c99b7e5302548060c01db5719fa6181a6a9"
FILES = (
    "chat/test_completions.py",
    "chat/completions/test_messages.py",
    "test_completions.py",
    "test_embeddings.py",
    "test_models.py",
    "test_files.py",
    "test_uploads.py",
    "uploads/test_parts.py",
    "test_batches.py",
    "test_responses.py",
    "responses/test_input_items.py",
    "responses/test_input_tokens.py",
    "audio/test_speech.py",
    "audio/test_transcriptions.py",
    "audio/test_translations.py",
    "audio/test_voices.py",
    "audio/test_voice_consents.py",
    "test_images.py",
    "test_moderations.py",
)
"""Of the resources that this server has, all their cases; and moderations, whose exclusion is to be seen."""
_NEEDS = (
    f"openai[aiohttp]=={VERSION}",
    "pytest>=9.0.3,<10",
    "pytest-asyncio>=1.4,<2",
    "pytest-xdist>=3.6.1,<4",
    "inline-snapshot>=0.28,<1",
    "rich>=13.7.1",
    "trio>=0.22.2",
)
_PLUGIN = Path(__file__).with_name("plugin")
_PIP_LIMIT_S = 900.0


class SuiteUnavailable(Exception):
    """The suite could not be brought here; the message is pip's."""


@dataclass(frozen=True)
class Suite:
    """The unpacked suite and the interpreter that has its dependencies."""

    folder: Path
    python: Path


def obtain() -> Suite:
    """The suite, downloaded and installed on the first call.

    Raises:
        SuiteUnavailable: no network and nothing cached, or the download is not what it should be.
    """
    folder = cache_dir("conformance")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return Suite(_unpacked(folder, _sdist(folder)), _venv(folder))


def _sdist(folder: Path) -> Path:
    path = folder / f"openai-{VERSION}.tar.gz"
    if not path.exists():
        _pip(
            Path(sys.executable),
            ["download", "--quiet", "--no-binary", "openai", "--no-deps", "--dest", str(folder), f"openai=={VERSION}"],
        )
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        path.unlink()
        raise SuiteUnavailable(f"{path} was not the file with sha256 {SHA256}; it is deleted, run this again")
    return path


def _unpacked(folder: Path, sdist: Path) -> Path:
    target = folder / f"openai-{VERSION}"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            with tarfile.open(sdist) as archive:
                archive.extractall(scratch, filter="data")
            Path(scratch, target.name).rename(target)
    return target


def _venv(folder: Path) -> Path:
    wanted = "\n".join((sys.version, *_NEEDS))
    venv, done = folder / "venv", folder / "venv.installed"
    python = venv / "bin" / "python"
    if not done.exists() or done.read_text() != wanted:
        done.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        _pip(python, ["install", "--quiet", *_NEEDS])
        done.write_text(wanted)
    return python


def _pip(python: Path, arguments: list[str]) -> None:
    argv = [str(python), "-m", "pip", *arguments]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=_PIP_LIMIT_S, check=False)
    if ran.returncode:
        raise SuiteUnavailable(f"pip {' '.join(arguments)}: {ran.stderr.strip()[-1500:]}")


def run(suite: Suite, proxy_port: int, extra: list[str], limit_s: float) -> list[CaseResult]:
    """Run the suite's files one case after the other through the counting proxy.

    Raises:
        SuiteUnavailable: pytest itself could not run.
    """
    with tempfile.TemporaryDirectory(prefix="coderai-conformance-") as scratch:
        lines = Path(scratch) / "reached.jsonl"
        env = clean_environment(
            PYTHONPATH=str(_PLUGIN),
            TEST_API_BASE_URL=f"http://127.0.0.1:{proxy_port}/v1",
            CODERAI_REACHED_URL=f"http://127.0.0.1:{proxy_port}{LEDGER_PATH}",
            CODERAI_REACHED_FILE=str(lines),
        )
        options = ["-c", "pyproject.toml", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "coderai_reached"]
        files = [f"tests/api_resources/{name}" for name in FILES]
        argv = [str(suite.python), "-m", "pytest", *options, "-q", "--tb=no", "--no-summary", "-n", "0", *files, *extra]
        ran = subprocess.run(argv, cwd=suite.folder, env=env, timeout=limit_s, check=False)
        if ran.returncode not in (0, 1) or not lines.exists():
            raise SuiteUnavailable(f"pytest ended with code {ran.returncode}; what it wrote stands above")
        return [_result(line) for line in lines.read_bytes().splitlines()]


def _result(line: bytes) -> CaseResult:
    read = orjson.loads(line)
    return CaseResult(read["id"], read["outcome"], tuple(read["requests"]), read["reason"])
