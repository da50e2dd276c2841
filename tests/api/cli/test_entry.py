"""Ctrl-C while the command is loading: the process ends by the signal and says nothing."""

import signal
import subprocess
import sys
import time

_LOADING = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "api.cli.main":
            print("loading", flush=True)
            time.sleep(30)
sys.meta_path.insert(0, Slow())
from api.cli.entry import main
main()
"""


def test_ctrl_c_while_loading_is_quiet() -> None:
    with subprocess.Popen([sys.executable, "-c", _LOADING], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"loading\n"
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        _out, said = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert said == b""
    assert time.monotonic() - begun < 10


def test_it_runs_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from api.cli.entry import main; main()", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "doctor" in done.stdout
