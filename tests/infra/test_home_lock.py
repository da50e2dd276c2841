"""The lock of a home, between real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.errors import Conflict
from infra.home_lock import LOCK_FILE, only_server

HOLD = "import sys; from infra.home_lock import only_server; from pathlib import Path\n" + (
    "with only_server(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path


def test_the_second_is_told_who_the_first_is(home: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(Conflict, match=f"process {first.pid}"), only_server(home):
            pass
        first.kill()
        first.wait()
        with only_server(home):
            assert int(home.joinpath(*LOCK_FILE).read_text()) == os.getpid()


def test_it_goes_with_the_block(home: Path) -> None:
    for _ in range(2):
        with only_server(home):
            pass
    assert home.joinpath(*LOCK_FILE).stat().st_mode & 0o777 == 0o600


def test_children_do_not_keep_it(home: Path) -> None:
    with only_server(home):
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    with child, only_server(home):
        assert child.stdin is not None
        child.stdin.close()


def test_a_lock_file_of_a_longer_number_is_overwritten(home: Path) -> None:
    home.joinpath(*LOCK_FILE).write_text("123456789012345\n")
    with only_server(home):
        assert int(home.joinpath(*LOCK_FILE).read_text()) == os.getpid()
