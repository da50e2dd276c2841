"""The process: Prefect's own app with our route in it, one uvicorn, and what runs beside it."""

import asyncio
import logging
import os
import signal
import socket
import threading
from types import FrameType

import uvicorn
import uvloop
from prefect.server.api.server import create_app
from prefect.settings.context import get_current_settings

from infra.errors import Bug
from infra.prefect_child.alive import Alive, answers
from infra.prefect_child.background import Background
from infra.prefect_child.brief import be_brief_about_locks
from infra.prefect_child.known_events import leave_out_known_events
from infra.prefect_child.spec import ChildOptions
from infra.prefect_child.turns import take_turns
from infra.prefect_child.work_pool_types import stay_here
from infra.pulse import keep_pulse

_STOP_S = 2.5
"""Everything here survives a SIGKILL, so that an end need not wait for a client or for a migration."""


class _Server(uvicorn.Server):
    """Says when it is up, and ends soon after a signal, whatever is still being waited for."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what breaks off now is meant to
        last = threading.Timer(_STOP_S, os._exit, (0,))
        last.daemon = True
        last.start()


def run(options: ChildOptions, port: int) -> None:
    """Serve on 127.0.0.1:`port` until SIGTERM or SIGINT."""
    stay_here()
    take_turns()
    leave_out_known_events()
    be_brief_about_locks()
    app = create_app(final=True)
    auth = get_current_settings().server.api.auth_string
    if auth is None:
        raise Bug("Prefect has no password: anybody on this machine could use it")
    background = Background(app, options, auth.get_secret_value())
    config = uvicorn.Config(
        Alive(app), host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=1
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(_Server(config), background))


async def _serve(server: _Server, background: Background) -> None:
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda *_: None)  # uvicorn raises what it caught once more when it has ended
    beside = asyncio.create_task(_beside(server, background), name="background")
    await server.serve()
    beside.cancel()
    await asyncio.wait([beside])
    if not beside.cancelled():
        beside.result()


async def _beside(server: _Server, background: Background) -> None:
    await server.up.wait()  # its first start takes minutes, and more where much is to be migrated
    pulse = asyncio.create_task(keep_pulse(lambda: answers(server.config.port)), name="pulse")
    try:
        await background.run()
    finally:
        pulse.cancel()
        server.should_exit = True
