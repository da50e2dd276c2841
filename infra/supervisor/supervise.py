"""The supervisor proper: keeps children running, restarts the crashed, gives up on the hopeless."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from infra.clock import Clock, monotonic
from infra.supervisor.backoff import Backoff, RestartPolicy
from infra.supervisor.guard import Guard
from infra.supervisor.logs import LineSink
from infra.supervisor.process import CannotStart, ChildProcess, describe_end, free_port, wants_port
from infra.supervisor.pulse import PATIENT, PulsePolicy
from infra.supervisor.types import EX_CONFIG, ChildSpec, ChildState, ChildStatus

SpecSource = Callable[[], ChildSpec]
"""Called before each start of a process; for a child whose inherited descriptor must be new each time."""
Listener = Callable[[ChildState], None]


@dataclass(slots=True)
class _Child:
    source: SpecSource
    backoff: Backoff
    state: ChildState
    process: ChildProcess | None = None
    keeper: asyncio.Task[None] | None = None
    last_exit: int | None = None
    silent_s: float = 0.0
    """For how long its last process had given no sign of life, if it was killed for that."""
    stop_grace_s: float = 0.0
    port: int | None = None
    """The port of its last process."""
    started: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """`Children` with real processes. All methods belong to the loop it was made on.

    Every child has a session and process group of its own; SIGTERM goes to the child, SIGKILL to its group. Children
    die with this process, by the kernel's word on Linux and by the guard's everywhere.
    """

    def __init__(
        self,
        guard: Guard,
        sink: LineSink,
        *,
        policy: RestartPolicy | None = None,
        pulse: PulsePolicy | None = None,
        clock: Clock = monotonic,
    ) -> None:
        self._guard = guard
        self._sink = sink
        self._policy = policy or RestartPolicy()
        self._pulse = pulse or PATIENT
        self._clock = clock
        self._ports: set[int] = set()
        self._children: dict[str, _Child] = {}
        self._listeners: list[Listener] = []

    async def start(self, spec: ChildSpec) -> ChildState:
        """Start a child; see `Children.start`. A program that cannot be run at all is quarantined with the reason."""
        return await self.start_from(spec.name, lambda: spec)

    async def start_from(self, name: str, source: SpecSource) -> ChildState:
        """Like `start`, with a spec that is made anew for each process of the child `name`."""
        while (old := self._children.get(name)) is not None and old.keeper is not None:
            if old.state.status == "stopped":
                break
            if not old.stopping.is_set():
                await old.started.wait()
                return old.state
            await asyncio.wait([old.keeper])
            await asyncio.sleep(0)  # the one who stops it has the word first
        incarnation = 0 if old is None else old.state.incarnation
        child = _Child(source, Backoff(self._policy), ChildState(name=name, status="backoff", incarnation=incarnation))
        self._children[name] = child
        child.keeper = asyncio.create_task(self._keep(child), name=f"keeper of {name}")
        await child.started.wait()
        return child.state

    async def stop(self, name: str, *, grace_s: float | None = None) -> None:
        """Stop a child; see `Children.stop`. `grace_s` overrides the spec's."""
        child = self._children.get(name)
        if child is None or child.keeper is None or child.state.status == "stopped":
            return
        child.stopping.set()
        if child.process is not None:
            child.process.terminate()
        await asyncio.wait([child.keeper], timeout=child.stop_grace_s if grace_s is None else grace_s)
        if child.process is not None:
            child.process.kill()
        await asyncio.wait([child.keeper])
        self._change(child, "stopped", child.state.reason)

    def states(self) -> dict[str, ChildState]:
        """Every child by name, the stopped ones included; with the log as it is now."""
        return {name: self._refreshed(child) for name, child in self._children.items()}

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with every change; see `Children.subscribe`."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Call it no more."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    def last_exit(self, name: str) -> int | None:
        """How the child's last process ended: exit code, or the negative signal; None while there was none."""
        child = self._children.get(name)
        return None if child is None else child.last_exit

    def kill_all(self) -> None:
        """SIGKILL to every group now: whoever waits for a grace to pass waits no longer."""
        for child in self._children.values():
            if child.process is not None:
                child.process.kill()

    async def close(self, *, grace_s: float | None = None) -> None:
        """Stop every child, all at once; `grace_s` overrides the specs'."""
        await asyncio.gather(*(self.stop(name, grace_s=grace_s) for name in self._children))

    async def _keep(self, child: _Child) -> None:
        """Run processes of one child, one after another, until it is stopped or given up."""
        try:
            delay_s: float | None = 0.0
            while delay_s is not None and not await _happens(child.stopping, delay_s):
                delay_s = await self._run_once(child)
        finally:
            child.started.set()

    async def _run_once(self, child: _Child) -> float | None:
        """One process from start to end; returns the wait before the next, None when there shall be none."""
        started_at = self._clock()
        child.silent_s = 0.0
        try:
            spec = child.source()
            child.stop_grace_s = spec.stop_grace_s
            child.state = child.state.model_copy(update={"note": spec.note})
            port = self._port(child, spec)
            with self._reserved(port):
                child.last_exit = await self._live(child, await ChildProcess.spawn(spec, self._sink, port))
        except CannotStart as error:
            self._change(child, "quarantined", str(error))
            return None
        except OSError as error:
            return self._after_end(child, f"its process cannot be made: {error}", started_at)
        crashed = not child.stopping.is_set()
        last_line = child.state.log_tail[-1] if crashed and child.state.log_tail else None
        return self._after_end(child, describe_end(child.last_exit, last_line, child.silent_s), started_at)

    async def _live(self, child: _Child, process: ChildProcess) -> int:
        """From the start of a process to its end."""
        child.process = process
        self._guard.add(process.pid)
        child.state = child.state.model_copy(update={"incarnation": child.state.incarnation + 1})
        self._change(child, "running", child.state.reason)
        if child.stopping.is_set():
            process.kill()  # it has done nothing yet
        child.started.set()
        code = await process.ended(self._pulse)
        child.silent_s = process.silent_s
        self._guard.discard(process.pid)
        child.state = self._refreshed(child)
        child.process = None
        return code

    def _port(self, child: _Child, spec: ChildSpec) -> int | None:
        if not wants_port(spec):
            return None
        child.port = free_port(self._ports, child.port if spec.keep_port else None)
        return child.port

    @contextlib.contextmanager
    def _reserved(self, port: int | None) -> Iterator[None]:
        """No other child gets this port meanwhile."""
        if port is not None:
            self._ports.add(port)
        try:
            yield
        finally:
            self._ports.discard(port or 0)

    def _after_end(self, child: _Child, reason: str, started_at: float) -> float | None:
        if child.stopping.is_set():
            self._change(child, "stopped", reason)
            return None
        delay_s = child.backoff.after_crash(started_at, self._clock(), silent_s=child.silent_s)
        if child.last_exit == EX_CONFIG or delay_s is None:
            self._sink(child.state.name, f"is not started again: {reason}")
            self._change(child, "quarantined", reason)
            return None
        self._sink(child.state.name, f"ended and starts again in {delay_s:g} s: {reason}")
        self._change(child, "backoff", reason)
        return delay_s

    def _change(self, child: _Child, status: ChildStatus, reason: str | None) -> None:
        process = child.process
        update = {
            "status": status,
            "reason": reason,
            "pid": None if process is None else process.pid,
            "port": None if process is None else process.port,
        }
        state = self._refreshed(child).model_copy(update=update)
        if state == child.state:
            return
        child.state = state
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.call_soon(listener, state)

    def _refreshed(self, child: _Child) -> ChildState:
        """The state with the lines that were written since."""
        if child.process is None:
            return child.state
        return child.state.model_copy(update={"log_tail": child.process.lines})


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    """True as soon as the event is set, False when the time is over."""
    if event.is_set() or within_s <= 0:
        return event.is_set()
    try:
        await asyncio.wait_for(event.wait(), within_s)
    except TimeoutError:
        return False
    return True
