"""The supervisor process as a whole: a real one, with a front that is a small program using the real link."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.infra.supervisor.programs import alive, kill, until

MAIN = """
import asyncio, os, sys
from infra.supervisor.backoff import RestartPolicy
from infra.supervisor.main_loop import supervise
from infra.supervisor.pulse import PulsePolicy
from infra.supervisor.types import ChildSpec

def front(descriptor):
    return ChildSpec(name="front", argv=(sys.executable, "-c", sys.argv[1]), pulse="keep_pulse" in sys.argv[1])

restarts, pulse = RestartPolicy(first_delay_s=0.02), PulsePolicy(look_s=0.5, misses=10)
sys.exit(asyncio.run(supervise(front, drain_s=float(sys.argv[2]), policy=restarts, pulse=pulse)))
"""

FRONT = """
import asyncio, os, signal, sys
from infra.pulse import keep_pulse
from infra.settings import link_fd
from infra.supervisor.link import SupervisorLink
from infra.supervisor.types import ChildSpec

async def main():
    pulse = asyncio.create_task(keep_pulse(every_s=0.1))
    link = await SupervisorLink.connect(link_fd())
    found = sorted(link.states())
    before = link.states()["front"].reason
    print("before", before, flush=True)
    code = "import time; time.sleep(600)"
    state = await link.start(ChildSpec(name="engine", argv=(sys.executable, "-I", "-S", "-c", code)))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print("pids", os.getpid(), state.pid, ",".join(found) or "none", flush=True)
    await stop.wait()
    print("draining", len(link.states()), flush=True)
    await asyncio.sleep(DRAIN)
    print("drained", flush=True)

asyncio.run(main())
"""


class Process:
    """A running supervisor whose output can be waited for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode().strip())

    async def line(self, start: str, number: int = 1) -> str:
        await until(lambda: sum(line.startswith(start) for line in self.lines) >= number, 20)
        return [line for line in self.lines if line.startswith(start)][number - 1]

    async def pids(self, number: int = 1) -> tuple[int, int, str]:
        *_, front, engine, found = (await self.line("front: pids", number)).split()
        return int(front), int(engine), found

    async def code(self) -> int:
        code = await asyncio.wait_for(self.process.wait(), 20)
        await self._reading
        return code


@asynccontextmanager
async def running(front: str, drain_s: float = 10.0) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MAIN, front, str(drain_s)), stderr=asyncio.subprocess.PIPE
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_the_front_then_stops_the_engines(sent: signal.Signals) -> None:
    async with running(FRONT.replace("DRAIN", "0.3")) as supervisor:
        front, engine, found = await supervisor.pids()
        assert found == "front"
        supervisor.process.send_signal(sent)
        assert await supervisor.line("front: draining") == "front: draining 2"
        assert alive(engine)
        assert await supervisor.code() == 0
        assert "front: drained" in supervisor.lines
        assert not alive(front)
        assert not alive(engine)


async def test_a_dead_front_comes_back_to_its_engines() -> None:
    async with running(FRONT.replace("DRAIN", "0")) as supervisor:
        front, engine, _ = await supervisor.pids()
        kill(front)
        second, same_engine, found = await supervisor.pids(2)
        assert (same_engine, found) == (engine, "engine,front")
        assert second != front
        supervisor.process.terminate()
        assert await supervisor.code() == 0
        assert not alive(engine)


async def test_a_front_that_hangs_is_killed_and_comes_back_to_its_engines() -> None:
    async with running(FRONT.replace("DRAIN", "0")) as supervisor:
        front, engine, _ = await supervisor.pids()
        assert await supervisor.line("front: before") == "front: before None"
        os.kill(front, signal.SIGSTOP)
        second, same_engine, found = await supervisor.pids(2)
        assert (same_engine, found) == (engine, "engine,front")
        assert not alive(front)
        assert alive(second)
        told = await supervisor.line("front: before", 2)
        assert told.startswith("front: before killed by SIGKILL after 5 s without a sign of life")


async def test_the_drain_has_a_deadline() -> None:
    async with running(FRONT.replace("DRAIN", "600"), drain_s=0.3) as supervisor:
        front, engine, _ = await supervisor.pids()
        supervisor.process.terminate()
        assert await supervisor.code() == 0
        assert not alive(front)
        assert not alive(engine)


async def test_a_second_signal_hurries() -> None:
    async with running(FRONT.replace("DRAIN", "600"), drain_s=600) as supervisor:
        front, engine, _ = await supervisor.pids()
        supervisor.process.send_signal(signal.SIGINT)
        await supervisor.line("front: draining")
        before = time.monotonic()
        supervisor.process.send_signal(signal.SIGINT)
        assert await supervisor.code() == 0
        assert time.monotonic() - before < 5
        assert not alive(front)
        assert not alive(engine)


async def test_unusable_settings_end_it_with_78() -> None:
    async with running("import sys; print('setting server.port cannot be used'); sys.exit(78)") as supervisor:
        assert await supervisor.code() == 78
        assert supervisor.lines[-1] == (
            "supervisor: the front cannot run: exited with code 78: setting server.port cannot be used"
        )
        assert sum("starts again" in line for line in supervisor.lines) == 0


async def test_a_front_that_keeps_crashing_ends_it_with_1() -> None:
    async with running("raise SystemExit('no database')") as supervisor:
        assert await supervisor.code() == 1
        assert supervisor.lines[-1] == "supervisor: the front cannot run: exited with code 1: no database"
        assert supervisor.lines.count("front: no database") == 5


async def test_nobody_outlives_a_killed_supervisor() -> None:
    async with running(FRONT.replace("DRAIN", "0")) as supervisor:
        front, engine, _ = await supervisor.pids()
        supervisor.process.kill()
        await until(lambda: not alive(front) and not alive(engine))


async def test_a_front_without_its_link_is_replaced() -> None:
    deaf = (
        "import os, time; print('pids', os.getpid(), 0, 'none', flush=True)\n"
        "os.close(int(os.environ['CODERAI_LINK_FD'])); time.sleep(600)"
    )
    async with running(deaf) as supervisor:
        first, *_ = await supervisor.pids()
        second, *_ = await supervisor.pids(2)
        assert first != second
        assert not alive(first)
