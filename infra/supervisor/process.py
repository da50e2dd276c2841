"""One process of a child: started in a group of its own, its output read, its end told in words."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket

from infra.settings import PULSE_FD_VARIABLE, inherited_environment
from infra.supervisor.guard import PYTHON
from infra.supervisor.logs import LineSink, LineTail
from infra.supervisor.pulse import PATIENT, Pulse, PulsePolicy
from infra.supervisor.types import ChildSpec

_CHUNK_BYTES = 64 * 1024
_OUTPUT_LINGER_S = 1.0
"""How long the output of a dead process is waited for, should somebody else hold its pipe."""
_SHORTEST_SECRET = 8


class CannotStart(Exception):
    """The process cannot be made; the text says why. Another try would end the same way."""


class ChildProcess:
    """A running process and its group. Made by `spawn`."""

    def __init__(
        self, process: asyncio.subprocess.Process, port: int | None, tail: LineTail, pulse: Pulse | None
    ) -> None:
        self.port = port
        self.silent_s = 0.0
        """For how long it had given no sign of life when it was killed for that."""
        self._process = process
        self._tail = tail
        self._pulse = pulse
        self._output: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process's id, which is its group's as well."""
        return self._process.pid

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines it wrote."""
        return self._tail.lines

    @classmethod
    async def spawn(cls, spec: ChildSpec, sink: LineSink, port: int | None) -> "ChildProcess":
        """Start the program of `spec` in a new session; `port` stands in for `{port}`.

        Raises:
            CannotStart: there is no such program.
            OSError: the system has no room for a process or its pipe at the moment.
        """
        argv = [_with_port(part, port) for part in spec.argv]
        environment = inherited_environment() | {key: _with_port(value, port) for key, value in spec.env.items()}
        environment |= spec.secret_env
        if shutil.which(argv[0], path=environment.get("PATH")) is None:
            raise CannotStart(f"the program {argv[0]!r} does not exist or may not be executed")
        secrets = tuple(value for value in spec.secret_env.values() if len(value) >= _SHORTEST_SECRET)
        kept = [] if spec.inherit_fd is None else [spec.inherit_fd]
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            reading, writing = os.pipe()
            ours.callback(os.close, reading)
            theirs.callback(os.close, writing)
            pulse = Pulse() if spec.pulse else None
            if pulse is not None:
                ours.callback(pulse.close)
                theirs.callback(pulse.handed_over)
                kept.append(pulse.theirs)
                environment[PULSE_FD_VARIABLE] = str(pulse.theirs)
            process = await asyncio.create_subprocess_exec(
                *(*PYTHON, "run", str(os.getpid()), *argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env=environment,
                start_new_session=True,
                pass_fds=kept,
            )
            ours.pop_all()
        child = cls(process, port, LineTail(spec.name, sink, secrets), pulse)
        child._output = asyncio.create_task(child._read(reading), name=f"output of {spec.name}")
        return child

    def terminate(self) -> None:
        """SIGTERM to the process; its own children are its business."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def ended(self, policy: PulsePolicy = PATIENT) -> int:
        """Wait for the end, kill what is left of the group, read the rest of the output; negative = the signal.

        A process that owes signs of life and gives none for as long as `policy` allows is killed.
        """
        watch = None if self._pulse is None else asyncio.create_task(self._watch(self._pulse, policy), name="pulse")
        try:
            code = await self._process.wait()
        finally:
            if watch is not None and self._pulse is not None:
                watch.cancel()
                await asyncio.wait([watch])
                self._pulse.close()
        self.kill()
        if self._output is not None:
            _, unfinished = await asyncio.wait([self._output], timeout=_OUTPUT_LINGER_S)
            for task in unfinished:
                task.cancel()
                await asyncio.wait([task])
        return code

    async def _watch(self, pulse: Pulse, policy: PulsePolicy) -> None:
        self.silent_s = await pulse.lost(policy)
        self.kill()  # one that is stopped hears no other signal

    async def _read(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            while data := await reader.read(_CHUNK_BYTES):
                self._tail.feed(data)
        finally:
            self._tail.end()
            transport.close()


def describe_end(code: int, last_line: str | None, silent_s: float = 0.0) -> str:
    """How a process ended, in words: exit code or signal, and the last line that it wrote. One that was ended for want
    of a sign of life had given none for `silent_s` seconds."""
    how = f"exited with code {code}" if code >= 0 else f"killed by {_signal_name(-code)}"
    if silent_s:
        how = f"{how} after {silent_s:g} s without a sign of life"
    return how if last_line is None else f"{how}: {last_line}"


def free_port(taken: set[int], wanted: int | None = None) -> int:
    """A loopback port that nobody listens on now and that is not in `taken`; `wanted`, if it is such a one."""
    if wanted is not None and wanted not in taken and _can_listen(wanted):
        return wanted
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port


def _can_listen(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the child does: old connections do not matter
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wants_port(spec: ChildSpec) -> bool:
    """Whether the spec has a place for a port."""
    return any("{port}" in text for text in (*spec.argv, *spec.env.values()))


def _with_port(text: str, port: int | None) -> str:
    return text if port is None else text.replace("{port}", str(port))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
