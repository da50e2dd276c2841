"""Tests of the entry: it is the supervisor's to start."""

import subprocess
import sys
from pathlib import Path

from infra.settings import inherited_environment
from infra.supervisor.types import EX_CONFIG

ROOT = Path(__file__).parents[3]


def test_it_starts_for_nobody_but_the_supervisor() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "infra.prefect_child", "4200"],
        env=inherited_environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == EX_CONFIG
    assert "coderai serve" in ended.stderr
