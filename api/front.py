"""The front process: `python -m api.front`, started by the supervisor with its end of the link."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator

import orjson
import uvicorn

from api.app import App
from api.compose import open_front
from api.protocol import patient_protocol
from api.services import Services
from infra.errors import CoderAIError, DatabaseTooNew, SettingsInvalid, UserError
from infra.files import write_atomic
from infra.listen import RUN_FILE, listen
from infra.log import set_up
from infra.pulse import keep_pulse
from infra.settings import INTERNAL_TOKEN_VARIABLE, Settings, handed_over, link_fd, load_settings
from infra.supervisor.link import SupervisorLink
from infra.supervisor.types import EX_CONFIG

WEBSOCKET_BYTES = 1 << 20
"""The largest message of a WebSocket: events of the flow-run server, leases of the worker process."""
IDLE_CONNECTION_S = 75
"""Longer than clients (5 s and more) and proxies (60 s) keep a connection that has nothing to do: what is being sent
just when we close one is lost."""
_GC_ALLOCATIONS = 10_000
"""Objects that may be made before the youngest are looked at: several dozen requests' worth."""


def main() -> int:
    """Serve until SIGTERM; 78 for what only the operator can mend, 1 for what may be better at another try."""
    try:
        settings = load_settings()
        set_up(settings.log)
        descriptor, token = link_fd(), handed_over(INTERNAL_TOKEN_VARIABLE)
        if descriptor is None or token is None:
            raise SettingsInvalid("the front is started by `coderai serve`, not by hand")
        listener = listen(settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(settings, descriptor, token, listener))
    except CoderAIError as error:
        print(f"error: {error.message}", file=sys.stderr)  # noqa: T201
        return EX_CONFIG if isinstance(error, UserError | DatabaseTooNew) else 1
    return 0


async def serve(settings: Settings, descriptor: int, internal_token: str, listener: socket.socket) -> None:
    """Answer clients on `listener` until a signal, then drain."""
    pulse = asyncio.create_task(keep_pulse(), name="pulse")
    link = await SupervisorLink.connect(descriptor)
    async with open_front(settings, link, internal_token) as services:
        app = App(services)
        server = _Server(app, services)
        host, port = listener.getsockname()[:2]
        write_atomic(
            settings.at(*RUN_FILE),
            orjson.dumps({"url": f"http://{_reachable(host)}:{port}", "pid": os.getpid(), "token": internal_token}),
        )
        _settle_memory()
        orphaned = asyncio.create_task(_end_with(link, server))
        try:
            await server.serve(sockets=[listener])
        finally:
            orphaned.cancel()
            await app.aclose()
    await link.close()
    pulse.cancel()


class _Server(uvicorn.Server):
    """A signal ends it as it ends uvicorn's, which then raises the same signal once more: that would kill this process
    before it has written down what is only in memory."""

    def __init__(self, app: App, services: Services) -> None:
        server = services.settings.server
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=patient_protocol(server.body_timeout_s),
                ws="websockets-sansio",
                ws_max_size=WEBSOCKET_BYTES,
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=round(server.drain_s),
                timeout_keep_alive=IDLE_CONNECTION_S,
            )
        )
        self._fleet = services.fleet

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal begins the drain; from then on the supervisor's patience is the limit."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._drain)
        yield

    def _drain(self) -> None:
        self._fleet.draining = True
        self.should_exit = True


def _settle_memory() -> None:
    """Take what start-up made out of the garbage collector's sight: walking it again and again would cost a third of
    every request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_ALLOCATIONS, 20, 20)


async def _end_with(link: SupervisorLink, server: uvicorn.Server) -> None:
    """A front whose supervisor is gone ends, too."""
    await link.closed()
    server.should_exit = True


def _reachable(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    try:
        import uvloop  # noqa: PLC0415  # absent on Windows
    except ImportError:
        return None
    return uvloop.Loop


if __name__ == "__main__":
    sys.exit(main())
