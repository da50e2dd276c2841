"""The line between supervisor and front: both ends over a real socketpair, with children that exist on paper only."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from infra.errors import EngineFailed
from infra.supervisor import link as link_module
from infra.supervisor.link import LinkServer, SupervisorLink
from infra.supervisor.types import Children, ChildSpec, ChildState
from tests.infra.supervisor.programs import until


class PaperChildren:
    """`Children` without processes: a start takes effect at once, a stop when `may_stop` is set."""

    def __init__(self) -> None:
        self.by_name: dict[str, ChildState] = {}
        self.specs: dict[str, ChildSpec] = {}
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self._listeners: list[Callable[[ChildState], None]] = []

    async def start(self, spec: ChildSpec) -> ChildState:
        if spec.name not in self.by_name or self.by_name[spec.name].status == "stopped":
            self.specs[spec.name] = spec
            self.report(ChildState(name=spec.name, status="running", pid=7, incarnation=1, note=spec.note))
        return self.by_name[spec.name]

    async def stop(self, name: str) -> None:
        await self.may_stop.wait()
        if name in self.by_name:
            self.report(self.by_name[name].model_copy(update={"status": "stopped", "pid": None}))

    def states(self) -> dict[str, ChildState]:
        return dict(self.by_name)

    def subscribe(self, listener: Callable[[ChildState], None]) -> None:
        self._listeners.append(listener)

    def report(self, state: ChildState) -> None:
        self.by_name[state.name] = state
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(listener, state)


async def connect(server: LinkServer) -> tuple[SupervisorLink, asyncio.Task[None]]:
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(server.serve(ours))
    return await SupervisorLink.connect(theirs.detach()), serving


ENGINE = ChildSpec(name="cpu/tiny", argv=("engine",), secret_env={"KEY": "very-secret"}, note={"model": "tiny"})


async def test_start_stop_and_changes_come_across() -> None:
    paper = PaperChildren()
    link, serving = await connect(LinkServer(paper))
    children: Children = link
    seen: list[str] = []
    children.subscribe(lambda state: seen.append(state.status))
    state = await children.start(ENGINE)
    assert (state.status, state.note) == ("running", {"model": "tiny"})
    assert paper.specs["cpu/tiny"] == ENGINE
    paper.report(state.model_copy(update={"status": "backoff", "reason": "killed by SIGSEGV"}))
    await until(lambda: children.states()["cpu/tiny"].status == "backoff")
    await children.stop("cpu/tiny")
    assert children.states()["cpu/tiny"].status == "stopped"
    await children.stop("nobody")
    assert seen == ["running", "backoff", "stopped"]
    await link.close()
    await asyncio.wait_for(serving, 5)


async def test_the_next_front_finds_the_children_of_the_last() -> None:
    server = LinkServer(PaperChildren())
    first, serving = await connect(server)
    await first.start(ENGINE)
    await first.close()
    await asyncio.wait_for(serving, 5)
    second, _ = await connect(server)
    assert second.states()["cpu/tiny"].note == {"model": "tiny"}
    assert (await second.start(ENGINE)).incarnation == 1
    await second.close()


async def test_requests_do_not_wait_for_each_other() -> None:
    paper = PaperChildren()
    link, _ = await connect(LinkServer(paper))
    await link.start(ENGINE)
    paper.may_stop.clear()
    stopping = asyncio.create_task(link.stop("cpu/tiny"))
    await link.start(ENGINE.model_copy(update={"name": "cpu/other"}))
    assert not stopping.done()
    paper.may_stop.set()
    await stopping
    await link.close()


async def test_a_dead_supervisor_fails_what_is_pending_and_what_comes() -> None:
    paper = PaperChildren()
    link, serving = await connect(LinkServer(paper))
    paper.may_stop.clear()
    stopping = asyncio.create_task(link.stop("cpu/tiny"))
    await asyncio.sleep(0.01)
    serving.cancel()
    with pytest.raises(EngineFailed, match="the link to the supervisor is gone"):
        await asyncio.wait_for(stopping, 5)
    assert await asyncio.wait_for(link.closed(), 5) == "the supervisor closed it"
    with pytest.raises(EngineFailed, match="is gone"):
        await link.start(ENGINE)
    await link.close()
    paper.may_stop.set()


async def test_a_front_cannot_take_our_descriptors() -> None:
    paper = PaperChildren()
    link, _ = await connect(LinkServer(paper))
    with pytest.raises(EngineFailed, match="cannot inherit"):
        await link.start(ENGINE.model_copy(update={"inherit_fd": 0}))
    assert paper.specs == {}
    await link.close()


@pytest.mark.parametrize("message", [b"GET / HTTP/1.1\n", b'{"op":"exec","id":1}\n', b'{"op":"stop"}\n', b"x" * 9000])
async def test_what_is_no_request_ends_the_link(message: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_LINE_BYTES", 4096)
    paper = PaperChildren()
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(LinkServer(paper).serve(ours))
    _, writer = await asyncio.open_unix_connection(sock=theirs)
    writer.write(message)
    await asyncio.wait_for(serving, 5)
    writer.close()


async def test_a_front_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_UNREAD_BYTES", 100_000)
    paper = PaperChildren()
    ours, theirs = socket.socketpair()
    serving = asyncio.create_task(LinkServer(paper).serve(ours))
    await asyncio.sleep(0.01)
    for number in range(2000):
        paper.report(ChildState(name="x", status="running", reason="y" * 1000, incarnation=number))
    await asyncio.wait_for(serving, 5)
    theirs.close()


async def test_no_supervisor_at_the_other_end() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with pytest.raises(EngineFailed, match="coderai serve"):
        await SupervisorLink.connect(theirs.detach())
