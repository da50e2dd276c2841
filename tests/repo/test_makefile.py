"""`make serve` finds a Python that will do, or says what to install; and pip is left alone when nothing changed."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, read

GOOD = 'case "$*" in *print*) echo 3.12 ;; *"-m venv"*) echo "venv with $0"; exit 7 ;; esac; exit 0'
OLD = 'case "$*" in *print*) echo 3.9 ;; *) exit 1 ;; esac'
BARE = 'case "$*" in *print*) echo 3.11 ;; *ensurepip*) exit 1 ;; esac; exit 0'


def test_help_is_the_default_and_names_every_target() -> None:
    said = _make(ROOT)
    for target in re.findall(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)[0].split():
        assert target == "static" or f"make {target} " in said.stdout


@pytest.mark.parametrize(
    ("pythons", "status", "words"),
    [
        ({"python3": OLD, "python3.12": GOOD}, 2, "(python3.12)"),
        ({"python3.12": BARE, "python3": GOOD}, 2, "(python3)"),
        ({"python3": OLD}, 2, "needs Python 3.11 or newer; python3 is 3.9;"),
        ({"python3": BARE}, 2, "sudo apt install python3.11-venv"),
        ({}, 2, "needs Python 3.11 or newer; none was found"),
    ],
)
def test_the_search_for_a_python(tmp_path: Path, pythons: dict[str, str], status: int, words: str) -> None:
    """With programs that only claim to be Python: the one taken is asked for a venv, which fails on purpose."""
    said = _make(_clone(tmp_path, pythons), "serve", path=tmp_path / "bin")
    assert said.returncode == status
    assert words in said.stdout + said.stderr


def test_a_second_start_touches_nothing(tmp_path: Path) -> None:
    """With current stamps the recipe is the server's start and nothing before it."""
    clone = _clone(tmp_path, {})
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").write_text("")
    for line in _make(clone, "serve", "-n").stdout.splitlines():
        if match := re.match(r"touch (\S+)$", line):
            (clone / match[1]).write_text("")
    assert _make(clone, "serve", "-n").stdout.splitlines() == ["exec .venv/bin/coderai serve"]
    edited = time.time() + 10
    os.utime(clone / "pyproject.toml", (edited, edited))
    assert "pip install" in _make(clone, "serve", "-n").stdout


def _clone(folder: Path, pythons: dict[str, str]) -> Path:
    tools = folder / "bin"
    tools.mkdir()
    for tool in ("sh", "cksum", "cut", "printf", "awk", "date", "make"):
        found = shutil.which(tool)
        assert found
        (tools / tool).symlink_to(found)
    for name, script in pythons.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    clone = folder / "clone"
    clone.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "packaged-models.txt"):
        shutil.copyfile(ROOT / name, clone / name)
    return clone


def _make(folder: Path, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    tools = str(path) if path else "/usr/local/bin:/usr/bin:/bin"
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=folder, env={"PATH": tools}, capture_output=True, text=True, timeout=60)
