"""Ports of loopback for the servers of tests.

They lie below those that the kernel gives to connections, and every process of a test run has a share of its own:
between the choice of a port and the start of its server nobody else takes it.
"""

import itertools
import os
import random
import socket
from typing import Final

_FIRST: Final = 12_000
_SHARE: Final = 2_500
_SHARES: Final = 8


def _share() -> int:
    """The number of this process among those of the test run."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")  # noqa: TID251  # pytest-xdist says it there alone
    return int(worker.removeprefix("gw")) % _SHARES


_next = itertools.count(random.randrange(_SHARE))  # another test run begins elsewhere


def free_port() -> int:
    """A port that nothing listens on now, and that is not given out again soon."""
    while True:
        port = _FIRST + _share() * _SHARE + next(_next) % _SHARE
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
