"""The supervisor with real processes."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from infra.supervisor.backoff import RestartPolicy
from infra.supervisor.guard import Guard
from infra.supervisor.pulse import PulsePolicy
from infra.supervisor.supervise import Supervisor
from infra.supervisor.types import Children, ChildSpec, ChildState
from tests.infra.supervisor.programs import DEAF, SLEEP, WITH_GRANDCHILD, alive, kill, python, until

QUICK = RestartPolicy(first_delay_s=0.02, longest_delay_s=0.05)
SOON = PulsePolicy(look_s=0.3, misses=10, first_misses=20)


@dataclass
class Bench:
    supervisor: Supervisor
    guard: Guard
    lines: list[tuple[str, str]] = field(default_factory=list)

    def state(self, name: str = "x") -> ChildState:
        return self.supervisor.states()[name]


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    lines: list[tuple[str, str]] = []
    async with Guard() as guard:
        supervisor = Supervisor(guard, lambda name, line: lines.append((name, line)), policy=QUICK, pulse=SOON)
        yield Bench(supervisor, guard, lines)
        await supervisor.close(grace_s=0.5)


def spec(code: str, *arguments: str, name: str = "x", grace_s: float = 5.0) -> ChildSpec:
    return ChildSpec(name=name, argv=python(code, *arguments), stop_grace_s=grace_s, note={"of": name})


def test_it_is_what_its_users_expect(bench: Bench) -> None:
    children: Children = bench.supervisor
    assert children.states() == {}


async def test_start_gives_port_environment_and_note(bench: Bench) -> None:
    code = "import os, sys, time; print(sys.argv[1], os.environ['WHERE'], os.environ['KEY'], flush=True); time.sleep(9)"
    child = spec(code, "{port}").model_copy(
        update={"env": {"WHERE": "at {port}"}, "secret_env": {"KEY": "secret-key-1"}}
    )
    state = await bench.supervisor.start(child)
    assert (state.status, state.incarnation, state.note) == ("running", 1, {"of": "x"})
    assert state.pid is not None
    assert alive(state.pid)
    await until(lambda: bool(bench.state().log_tail))
    assert bench.state().log_tail == (f"{state.port} at {state.port} [secret]",)
    assert bench.lines == [("x", f"{state.port} at {state.port} [secret]")]


async def test_a_name_in_use_starts_nothing(bench: Bench) -> None:
    first, second = await asyncio.gather(bench.supervisor.start(spec(SLEEP)), bench.supervisor.start(spec(SLEEP)))
    assert first.pid == second.pid
    assert (await bench.supervisor.start(spec(DEAF))).pid == first.pid


async def test_a_killed_child_comes_back_with_a_new_port(bench: Bench) -> None:
    seen: list[ChildState] = []
    bench.supervisor.subscribe(seen.append)
    first = await bench.supervisor.start(spec(SLEEP, "{port}"))
    kill(first.pid)
    await until(lambda: len(seen) == 3)
    second = bench.state()
    assert (second.status, second.incarnation) == ("running", 2)
    assert second.reason == "killed by SIGKILL"
    assert second.pid != first.pid
    assert second.port not in (None, first.port)
    assert [state.status for state in seen] == ["running", "backoff", "running"]


async def test_a_child_that_wishes_so_keeps_its_port(bench: Bench) -> None:
    first = await bench.supervisor.start(spec(SLEEP, "{port}").model_copy(update={"keep_port": True}))
    kill(first.pid)
    await until(lambda: bench.state().incarnation == 2)
    assert bench.state().port == first.port


async def test_the_hopeless_are_quarantined_and_get_a_fresh_chance(bench: Bench) -> None:
    child = spec("import sys; print('first', flush=True); sys.exit('no such weights')")
    await bench.supervisor.start(child)
    await until(lambda: bench.state().status == "quarantined")
    state = bench.state()
    assert (state.incarnation, state.pid, state.port) == (5, None, None)
    assert state.reason == "exited with code 1: no such weights"
    assert state.log_tail == ("first", "no such weights")
    assert (await bench.supervisor.start(child)).status == "quarantined"
    await bench.supervisor.stop("x")
    assert bench.state().status == "stopped"
    again = await bench.supervisor.start(child)
    assert (again.status, again.incarnation) == ("running", 6)


async def test_exit_code_78_means_never_again(bench: Bench) -> None:
    await bench.supervisor.start(spec("import sys; print('bad settings'); sys.exit(78)"))
    await until(lambda: bench.state().status == "quarantined")
    assert bench.state().incarnation == 1
    assert bench.state().reason == "exited with code 78: bad settings"
    assert bench.supervisor.last_exit("x") == 78


async def test_a_program_that_does_not_exist_says_so_at_once(bench: Bench) -> None:
    state = await bench.supervisor.start(ChildSpec(name="x", argv=("/nowhere/llama-server", "-m", "y")))
    assert state.status == "quarantined"
    assert state.reason == "the program '/nowhere/llama-server' does not exist or may not be executed"
    assert state.incarnation == 0


async def test_a_file_that_is_no_program_ends_with_the_reason(bench: Bench, tmp_path: Path) -> None:
    broken = tmp_path / "server"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    await bench.supervisor.start(ChildSpec(name="x", argv=(str(broken),)))
    await until(lambda: bench.state().status == "quarantined")
    assert bench.state().reason == f"exited with code 126: cannot run {broken}: Exec format error"


async def test_stop_takes_grandchildren_along_and_is_quick(bench: Bench) -> None:
    state = await bench.supervisor.start(spec(WITH_GRANDCHILD))
    await until(lambda: bool(bench.state().log_tail))
    grandchild = int(bench.state().log_tail[0].split()[1])
    before = time.monotonic()
    await bench.supervisor.stop("x")
    assert time.monotonic() - before < 3
    assert bench.state().status == "stopped"
    assert state.pid is not None
    assert not alive(state.pid)
    await until(lambda: not alive(grandchild))


async def test_a_crash_takes_grandchildren_along(bench: Bench) -> None:
    state = await bench.supervisor.start(spec(WITH_GRANDCHILD))
    await until(lambda: bool(bench.state().log_tail))
    grandchild = int(bench.state().log_tail[0].split()[1])
    kill(state.pid)
    await until(lambda: not alive(grandchild))


async def test_who_ignores_sigterm_is_killed_after_the_grace(bench: Bench) -> None:
    state = await bench.supervisor.start(spec(DEAF, grace_s=0.3))
    await until(lambda: bool(bench.state().log_tail))
    before = time.monotonic()
    await bench.supervisor.stop("x")
    assert 0.25 < time.monotonic() - before < 3
    assert state.pid is not None
    assert not alive(state.pid)
    assert bench.state().reason == "killed by SIGKILL"


async def test_stop_during_backoff_and_of_unknown_names(bench: Bench) -> None:
    slow = Supervisor(bench.guard, lambda *_: None, policy=RestartPolicy(first_delay_s=60))
    await slow.start(spec("raise SystemExit(3)"))
    await until(lambda: slow.states()["x"].status == "backoff")
    await asyncio.wait_for(slow.stop("x"), 2)
    assert slow.states()["x"].status == "stopped"
    await slow.stop("nobody")


async def test_start_during_a_stop_waits_for_its_end(bench: Bench) -> None:
    first = await bench.supervisor.start(spec(DEAF, grace_s=0.3))
    await until(lambda: bool(bench.state().log_tail))
    stopping = asyncio.create_task(bench.supervisor.stop("x"))
    await asyncio.sleep(0.05)
    second = await bench.supervisor.start(spec(SLEEP))
    await stopping
    assert first.pid is not None
    assert not alive(first.pid)
    assert (second.status, second.incarnation) == ("running", 2)
    assert second.pid != first.pid
    assert bench.state().status == "running"


@pytest.mark.timeout(60)
async def test_a_flood_of_output_is_read_to_its_end(bench: Bench) -> None:
    code = "import sys\nfor n in range(1600): sys.stdout.write(('%06d ' % n + 'x' * 992 + '\\n') * 64)\nsys.exit(78)"
    ticks = 0
    await bench.supervisor.start(spec(code))  # 102 MB
    while bench.state().status == "running":
        await asyncio.sleep(0.01)
        ticks += 1
    assert len(bench.lines) == 1600 * 64 + 1
    assert bench.state().log_tail[-1].startswith("001599 xxx")
    assert len(bench.state().log_tail) == 20
    assert ticks > 5


async def test_two_children_never_share_a_port(bench: Bench) -> None:
    names = [f"c{number}" for number in range(5)]
    states = await asyncio.gather(*(bench.supervisor.start(spec(SLEEP, "{port}", name=name)) for name in names))
    assert len({state.port for state in states}) == len(names)


async def test_a_killed_guard_is_replaced_and_told_everything(bench: Bench) -> None:
    await bench.supervisor.start(spec(SLEEP))
    old = bench.guard.pid
    kill(old)
    await until(lambda: bench.guard.pid != old)
    assert bench.guard.pid is not None
    assert alive(bench.guard.pid)


SUPERVISOR_PROGRAM = """
import asyncio, sys
from infra.supervisor.guard import Guard
from infra.supervisor.pulse import PulsePolicy
from infra.supervisor.supervise import Supervisor
from infra.supervisor.types import ChildSpec

async def main():
    async with Guard() as guard:
        supervisor = Supervisor(guard, lambda name, line: print(name, line, flush=True))
        state = await supervisor.start(ChildSpec(name="x", argv=(sys.executable, "-I", "-S", "-c", sys.argv[1])))
        print("child", state.pid, flush=True)
        told = None
        while True:
            if guard.pid != told:
                told = guard.pid
                print("guard", told, flush=True)
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


@pytest.mark.parametrize("guard", ["lives", "dies too", "was replaced"])
async def test_nobody_outlives_a_killed_supervisor(guard: str) -> None:
    if guard == "dies too" and sys.platform != "linux":
        pytest.skip("only Linux kills children without the guard")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SUPERVISOR_PROGRAM, WITH_GRANDCHILD), stdout=asyncio.subprocess.PIPE
    )
    pids: dict[str, int] = {}
    assert process.stdout is not None
    while len(pids) < 3:
        *_, word, number = (await asyncio.wait_for(process.stdout.readline(), 10)).decode().split()
        pids[word] = int(number)
    assert all(alive(pid) for pid in pids.values())
    if guard != "lives":
        kill(pids["guard"])
    if guard == "was replaced":
        line = (await asyncio.wait_for(process.stdout.readline(), 10)).decode().split()
        assert line[0] == "guard"
        pids["guard"] = int(line[1])
        await asyncio.sleep(0.2)  # what it is told is on its way
    process.kill()
    await until(lambda: not alive(pids["child"]))
    if guard != "dies too":
        await until(lambda: not any(alive(pid) for pid in pids.values()))
    elif alive(pids["grandchild"]):
        kill(pids["grandchild"])
    await process.wait()


async def test_a_child_whose_spec_cannot_be_made_now_is_tried_again(bench: Bench) -> None:
    full = [OSError(24, "Too many open files")]

    def source() -> ChildSpec:
        if full:
            raise full.pop()
        return spec(SLEEP)

    await bench.supervisor.start_from("x", source)
    await until(lambda: bench.state().status == "running")
    assert ("x", "ended and starts again in 0.02 s: its process cannot be made: [Errno 24] Too many open files") in (
        bench.lines
    )
