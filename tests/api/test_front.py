"""A front that was started in the wrong way, and where its owner finds it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.front import _reachable
from infra.listen import RUN_FILE
from infra.supervisor.types import EX_CONFIG


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "[::1]"), ("10.1.2.3", "10.1.2.3"), ("box", "box")],
)
def test_where_the_owner_s_command_line_finds_it(host: str, url: str) -> None:
    assert _reachable(host) == url


def test_by_hand_it_says_how_it_is_started(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "api.front"],
        env={"PATH": os.defpath, "CODERAI_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == EX_CONFIG
    assert done.stderr == "error: the front is started by `coderai serve`, not by hand\n"
    assert not tmp_path.joinpath(*RUN_FILE).exists()
