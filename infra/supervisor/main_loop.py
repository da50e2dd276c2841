"""The supervisor process: one front, the children it asks for, signals, and the order of the end."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator

from infra.settings import LINK_FD_VARIABLE
from infra.supervisor.backoff import RestartPolicy
from infra.supervisor.guard import Guard
from infra.supervisor.link import LinkServer
from infra.supervisor.logs import LineSink, StderrSink
from infra.supervisor.pulse import PulsePolicy
from infra.supervisor.supervise import Supervisor
from infra.supervisor.types import EX_CONFIG, ChildSpec, ChildState

_log = logging.getLogger(__name__)

DEAF_FRONT_S = 5.0
"""Seconds that a front may live on after its link has closed."""

LAST_WORDS_S = 3.0
"""Seconds that a front has beyond its drain to write down what is only in its memory."""

FRONT = "front"
"""The front's name among the children."""

FrontSpec = Callable[[int], ChildSpec]
"""Makes the front's spec out of the descriptor of its end of the link; its name is ours to give."""


async def supervise(
    front: FrontSpec,
    *,
    drain_s: float,
    sink: LineSink | None = None,
    policy: RestartPolicy | None = None,
    pulse: PulsePolicy | None = None,
) -> int:
    """Run a front, and the children it asks for, until SIGTERM or SIGINT; return the process's exit code.

    The front finds the number of its descriptor in `CODERAI_LINK_FD`. On a signal it gets SIGTERM and `drain_s`
    seconds, and a few to close; then its children are stopped. A second signal ends everything at once.
    0 = stopped by a signal, 78 = the front said that its settings cannot be used, 1 = it crashed too often; the reason
    is then written last.
    """
    own_sink = StderrSink() if sink is None else None
    write = sink or own_sink
    assert write is not None
    try:
        async with Guard() as guard:
            engines = Supervisor(guard, write, policy=policy, pulse=pulse)
            keeper = Supervisor(guard, write, policy=policy, pulse=pulse)
            return await _Process(front, engines, keeper, write).run(drain_s)
    finally:
        if own_sink is not None:
            own_sink.close()


class _Process:
    """What `supervise` holds while it runs."""

    def __init__(self, front: FrontSpec, engines: Supervisor, keeper: Supervisor, sink: LineSink) -> None:
        self._front = front
        self._engines = engines
        self._keeper = keeper
        self._sink = sink
        self._server = LinkServer(engines, keeper)
        self._theirs: socket.socket | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._asked_to_stop = 0

    async def run(self, drain_s: float) -> int:
        """Start the front, wait for the end, put everything away."""
        self._keeper.subscribe(self._front_changed)
        with self._signals():
            await self._keeper.start_from(FRONT, self._next_front)
            await self._over.wait()
            code = self._exit_code()
            await self._keeper.stop(FRONT, grace_s=drain_s + LAST_WORDS_S)
            await self._engines.close(grace_s=0.0 if self._asked_to_stop > 1 else None)
        for link in self._links:
            link.cancel()
        if self._links:
            await asyncio.wait(self._links)
        return code

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for kind in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(kind, self._signalled)
        try:
            yield
        finally:
            for kind in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(kind)

    def _signalled(self) -> None:
        self._asked_to_stop += 1
        self._over.set()
        if self._asked_to_stop > 1:
            self._keeper.kill_all()
            self._engines.kill_all()

    def _next_front(self) -> ChildSpec:
        """A fresh socketpair for each front: the old one may hold half a message."""
        self._forget_their_end()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._theirs = theirs
        link = asyncio.create_task(self._serve(ours), name="link to the front")
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        spec = self._front(theirs.fileno())
        env = {**spec.env, LINK_FD_VARIABLE: str(theirs.fileno())}
        return spec.model_copy(update={"name": FRONT, "inherit_fd": theirs.fileno(), "env": env})

    async def _serve(self, ours: socket.socket) -> None:
        await self._server.serve(ours)
        served = self._keeper.states().get(FRONT)
        await asyncio.sleep(DEAF_FRONT_S)
        now = self._keeper.states().get(FRONT)
        if served and now and served.pid is not None and (served.pid, served.incarnation) == (now.pid, now.incarnation):
            _log.error("the front lives on without its link; killing it")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(served.pid, signal.SIGKILL)

    def _front_changed(self, state: ChildState) -> None:
        if state.status != "stopped":
            self._forget_their_end()
        if state.status == "quarantined":
            self._over.set()

    def _forget_their_end(self) -> None:
        """Close our copy of the front's end, so that its death closes the link."""
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None

    def _exit_code(self) -> int:
        state = self._keeper.states()[FRONT]
        if state.status != "quarantined":
            return 0
        self._sink("supervisor", f"the front cannot run: {state.reason}")
        return EX_CONFIG if self._keeper.last_exit(FRONT) == EX_CONFIG else 1
