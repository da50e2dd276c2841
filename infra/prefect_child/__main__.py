"""`python -m infra.prefect_child PORT`: serves Prefect on loopback until SIGTERM. Started by the supervisor."""

import logging
import os
import sys

from infra.prefect_child.spec import OPTIONS_VARIABLE, ChildOptions
from infra.settings import handed_over
from infra.supervisor.types import EX_CONFIG

log = logging.getLogger("infra.prefect_child")

_NICENESS = 5
"""Recording gives way to answering."""


def main(arguments: list[str]) -> int:
    """Run the child; returns its exit code."""
    handed = handed_over(OPTIONS_VARIABLE)
    if handed is None or len(arguments) != 1:
        sys.stderr.write("this process is started by `coderai serve`\n")
        return EX_CONFIG
    options = ChildOptions.model_validate_json(handed)
    os.umask(0o077)
    os.nice(_NICENESS)
    options.home.joinpath("prefect").mkdir(mode=0o700, parents=True, exist_ok=True)
    # Importing Prefect takes seconds of CPU: not before this process has become nice.
    from infra.prefect_child.server import run  # noqa: PLC0415

    try:
        run(options, int(arguments[0]))
    except (Exception, SystemExit):  # uvicorn exits where the port is taken
        log.exception("the Prefect child failed")  # the last line is what the supervisor gives as the reason
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # all is closed; the interpreter's own end takes seconds, or hangs in one of Prefect's libraries
