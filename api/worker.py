"""The worker process of the job lane: `python -m api.worker`, asked for by the front, beside the Prefect child."""

import asyncio
import os
import signal
import sys
import threading
import time

from infra.errors import CoderAIError, SettingsInvalid, UserError
from infra.log import set_up
from infra.settings import INTERNAL_TOKEN_VARIABLE, handed_over, load_settings
from infra.supervisor.types import EX_CONFIG

NICENESS = 5
"""A job can wait for a processor; a client's request should not."""
LAST_S = 5.0
"""Seconds from a signal to the end of the process, whatever it waits for."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """Execute jobs until SIGTERM; 78 for what only the operator can mend."""
    # Prefect's flow engine takes SIGTERM for itself while a flow runs, and raises it wherever the loop happens to be.
    # Blocked in all threads, the signal is ours: one thread waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    os.nice(NICENESS)
    try:
        settings = load_settings()
        set_up(settings.log)
        token = handed_over(INTERNAL_TOKEN_VARIABLE)
        if token is None:
            raise SettingsInvalid("the worker process is started by `coderai serve`, not by hand")
        # Not before the process is nice: this costs seconds, in which the front has its first requests.
        from api.office import work  # noqa: PLC0415

        async def until_signal() -> None:
            await work(settings, token, _signalled(asyncio.get_running_loop()))

        asyncio.run(until_signal())
    except CoderAIError as error:
        print(f"error: {error.message}", file=sys.stderr)  # noqa: T201
        return EX_CONFIG if isinstance(error, UserError) else 1
    return 0


def _signalled(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """An event of the running loop that is set once a signal asks this process to end; soon after, it has ended."""
    event = asyncio.Event()

    def wait() -> None:
        signal.sigwait(_SIGNALS)
        loop.call_soon_threadsafe(event.set)
        # What Prefect's threads still want to tell a server that does not answer holds up nobody.
        time.sleep(LAST_S)
        os._exit(0)

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return event


if __name__ == "__main__":
    sys.exit(main())
