"""The command's first lines: Ctrl-C ends it quietly, even while the rest of it is still being loaded."""

import signal


def main() -> None:
    """Load the command line and run it."""
    while_running = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from api.cli.main import main as run  # noqa: PLC0415  # this is the loading that Ctrl-C may end

    signal.signal(signal.SIGINT, while_running)
    run()
