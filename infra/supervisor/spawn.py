"""Run as a script, with nothing but the standard library: the launcher of a child, and the guard of all children.

`spawn.py run PARENT PROGRAM ARG...` becomes PROGRAM after asking the kernel (Linux) to kill it when the process PARENT
dies. `spawn.py guard` reads `+GROUP` and `-GROUP` lines from standard input and, at its end, kills the process groups
that remain: the supervisor is gone, whatever killed it. The guard works on every Unix and reaches grandchildren.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable

_PR_SET_PDEATHSIG = 1
CANNOT_EXECUTE = 126
"""Exit code of the launcher when the program cannot be run."""


def run(parent: int, argv: list[str]) -> int:
    """Become the program `argv`, bound to the life of process `parent`. Returns only on failure."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return 1  # it died before the kernel knew of our wish
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"cannot run {argv[0]}: {error.strerror}\n")
    return CANNOT_EXECUTE


def guard(lines: Iterable[str]) -> None:
    """Keep the list of groups until `lines` end, then kill those that are left."""
    groups: set[int] = set()
    for line in lines:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """The script's entry: see the module's words."""
    if arguments[0] == "guard":
        for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(kind, signal.SIG_IGN)
        guard(sys.stdin)
        return 0
    return run(int(arguments[1]), arguments[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
