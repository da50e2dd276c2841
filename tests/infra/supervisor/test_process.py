"""One process: how it is started, what is heard of it, how its end is told. Restarts: `test_supervise.py`."""

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from infra.supervisor.process import CannotStart, ChildProcess, describe_end, free_port, wants_port
from infra.supervisor.types import ChildSpec
from tests.infra.supervisor.programs import DEAF, SLEEP, WITH_GRANDCHILD, alive, kill, python, until


class Started:
    """A process and what it said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def spawn(self, code: str, port: int | None = None, **secret_env: str) -> ChildProcess:
        spec = ChildSpec(name="x", argv=python(code, "{port}"), env={"WHERE": "at {port}"}, secret_env=secret_env)
        return await ChildProcess.spawn(spec, lambda _name, line: self.lines.append(line), port)


async def ended(child: ChildProcess) -> int:
    async with asyncio.timeout(10):
        return await child.ended()


async def test_its_port_its_environment_and_its_last_words() -> None:
    started = Started()
    code = (
        "import os, sys\nprint(sys.argv[1], os.environ['WHERE'], flush=True)\n"
        "sys.stderr.write('no newline')\nsys.exit(3)"
    )
    child = await started.spawn(code, 4711)
    assert await ended(child) == 3
    assert child.port == 4711
    assert child.lines == tuple(started.lines) == ("4711 at 4711", "no newline")


async def test_a_secret_is_in_the_environment_and_in_no_line() -> None:
    started = Started()
    code = "import os; print(os.environ['KEY'], os.environ['SHORT'])"
    await ended(await started.spawn(code, KEY="long-enough", SHORT="abc"))
    assert started.lines == ["[secret] abc"]


async def test_it_inherits_no_secret_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODERAI_CLUSTER_TOKEN", "hush")
    started = Started()
    await ended(await started.spawn("import os; print('hush' in os.environ.values(), 'PATH' in os.environ)"))
    assert started.lines == ["False True"]


async def test_terminate_asks_and_kill_does_not() -> None:
    polite = await Started().spawn(SLEEP)
    polite.terminate()
    assert await ended(polite) in (-signal.SIGTERM, 1)
    started = Started()
    deaf = await started.spawn(DEAF)
    await until(lambda: started.lines == ["deaf"])
    deaf.terminate()
    await asyncio.sleep(0.1)
    assert alive(deaf.pid)
    deaf.kill()
    assert await ended(deaf) == -signal.SIGKILL


async def test_signals_to_what_has_ended_are_no_error() -> None:
    child = await Started().spawn("pass")
    await ended(child)
    child.terminate()
    child.kill()


async def test_the_end_takes_the_group_along() -> None:
    started = Started()
    child = await started.spawn(WITH_GRANDCHILD)
    await until(lambda: bool(started.lines))
    grandchild = int(started.lines[0].split()[1])
    child.terminate()
    await ended(child)
    await until(lambda: not alive(grandchild))


async def test_who_holds_its_output_open_elsewhere_does_not_hold_up_its_end() -> None:
    """A grandchild that left the group keeps the pipe; it is waited for a moment only."""
    started = Started()
    code = WITH_GRANDCHILD.replace("600)'])", "600)'], start_new_session=True)").removesuffix("time.sleep(600)")
    child = await started.spawn(code)
    before_s = asyncio.get_running_loop().time()
    assert await ended(child) == 0
    assert asyncio.get_running_loop().time() - before_s < 5
    grandchild = int(started.lines[0].split()[1])
    assert alive(grandchild)
    kill(grandchild)


@pytest.mark.parametrize("program", ["/nowhere/llama-server", "no-such-program-anywhere", ""])
async def test_a_program_that_does_not_exist(program: str) -> None:
    with pytest.raises(CannotStart, match="does not exist or may not be executed"):
        await ChildProcess.spawn(ChildSpec(name="x", argv=(program,)), lambda *_: None, None)


async def test_a_file_that_may_not_be_executed(tmp_path: Path) -> None:
    file = tmp_path / "server"
    file.write_text("#!/bin/sh\n")
    with pytest.raises(CannotStart):
        await ChildProcess.spawn(ChildSpec(name="x", argv=(str(file),)), lambda *_: None, None)


async def test_a_descriptor_is_handed_over() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        code = f"import socket; socket.socket(fileno={theirs.fileno()}).send(b'hi')"
        spec = ChildSpec(name="x", argv=python(code), inherit_fd=theirs.fileno())
        await ended(await ChildProcess.spawn(spec, lambda *_: None, None))
        assert ours.recv(10) == b"hi"


@pytest.mark.parametrize(
    ("code", "line", "words"),
    [
        (0, None, "exited with code 0"),
        (1, "no such file", "exited with code 1: no such file"),
        (-9, None, "killed by SIGKILL"),
        (-11, "about to crash", "killed by SIGSEGV: about to crash"),
        (-250, None, "killed by signal 250"),
    ],
)
def test_an_end_in_words(code: int, line: str | None, words: str) -> None:
    assert describe_end(code, line) == words


def test_a_free_port_is_free_and_not_taken() -> None:
    taken: set[int] = set()
    for _ in range(20):
        port = free_port(taken)
        assert port not in taken
        taken.add(port)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_a_wanted_port_is_given_while_it_can_be_had() -> None:
    wanted = free_port(set())
    assert free_port(set(), wanted) == wanted
    assert free_port({wanted}, wanted) != wanted
    with socket.socket() as other:
        other.bind(("127.0.0.1", wanted))
        other.listen()
        assert free_port(set(), wanted) != wanted


@pytest.mark.parametrize(
    ("argv", "env", "wants"),
    [
        (("x", "--port", "{port}"), {}, True),
        (("x",), {"AT": "127.0.0.1:{port}"}, True),
        (("x", "port"), {"{port}": "x"}, False),
    ],
)
def test_who_wants_a_port(argv: tuple[str, ...], env: dict[str, str], wants: bool) -> None:
    assert wants_port(ChildSpec(name="x", argv=argv, env=env)) is wants
