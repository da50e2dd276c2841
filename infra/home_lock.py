"""One server a home: a lock that the kernel takes back when its holder dies, whatever it dies of."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.errors import Conflict
from infra.files import full_disk_named

LOCK_FILE = ("run", "serve.lock")
"""Below the home; holds the process id of the server. The folder must exist."""


@contextmanager
def only_server(home: Path) -> Iterator[None]:
    """Be the only server of `home` for as long as the block lasts. Children do not inherit the lock.

    Raises:
        Conflict: another process serves it; the message says which.
        DiskFull: no room for the lock's file.
    """
    path = home.joinpath(*LOCK_FILE)
    with full_disk_named(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with full_disk_named(path):
            _take(descriptor, home)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, home: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
        raise Conflict(
            f"{home} is being served already, by process {holder or 'of unknown number'}: use that server, stop it, "
            "or choose another home with CODERAI_HOME"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
