"""The line between a supervisor and its front: JSON lines over a socketpair, both ends of it.

On connecting, the front is told the state of every child first, so that one that has just been restarted finds its
engines. Only this machine's own two processes hold the ends; what comes is validated all the same.
"""

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from infra.errors import EngineFailed
from infra.supervisor.types import Children, ChildSpec, ChildState
from infra.types import Frozen

_log = logging.getLogger(__name__)

MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer message breaks the link."""
MAX_UNREAD_BYTES = 32 * 1024 * 1024
"""A front that leaves more than this unread is cut off, so that a hung one cannot eat the supervisor's memory."""


class _Start(Frozen):
    op: Literal["start"] = "start"
    id: int
    spec: ChildSpec


class _Stop(Frozen):
    op: Literal["stop"] = "stop"
    id: int
    name: str


class _Answer(Frozen):
    op: Literal["answer"] = "answer"
    id: int
    state: ChildState | None = None
    error: str | None = None


class _Changed(Frozen):
    op: Literal["changed"] = "changed"
    state: ChildState


class _Complete(Frozen):
    """The states sent so far are all there are."""

    op: Literal["complete"] = "complete"


_Request = Annotated[_Start | _Stop, Field(discriminator="op")]
_Report = Annotated[_Answer | _Changed | _Complete, Field(discriminator="op")]
_REQUEST: TypeAdapter[_Start | _Stop] = TypeAdapter(_Request)
_REPORT: TypeAdapter[_Answer | _Changed | _Complete] = TypeAdapter(_Report)


class SupervisorLink:
    """`Children` as the front has it: every call goes to the supervisor. Made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._states: dict[str, ChildState] = {}
        self._listeners: list[Callable[[ChildState], None]] = []
        self._waiting: dict[int, asyncio.Future[ChildState | None]] = {}
        self._ids = itertools.count(1)
        self._complete = asyncio.Event()
        self._lost: str | None = None
        self._task = asyncio.create_task(self._receive(), name="supervisor link")

    @classmethod
    async def connect(cls, descriptor: int, *, timeout_s: float = 10.0) -> "SupervisorLink":
        """Take over the front's end of the socketpair; returns once every child's state is known.

        Raises:
            EngineFailed: nothing usable came within `timeout_s`.
        """
        reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=descriptor), limit=MAX_LINE_BYTES)
        link = cls(reader, writer)
        waiting = asyncio.create_task(link._complete.wait())
        await asyncio.wait([waiting, link._task], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not link._complete.is_set():
            waiting.cancel()
            await link.close()
            raise EngineFailed("the supervisor did not report on the link; start the front with `coderai serve`")
        return link

    async def start(self, spec: ChildSpec) -> ChildState:
        """See `Children.start`.

        Raises:
            EngineFailed: the link is gone, or the supervisor refused.
        """
        state = await self._ask(_Start(id=next(self._ids), spec=spec))
        if state is None:
            raise EngineFailed(f"the supervisor did not say what became of {spec.name}")
        return state

    async def stop(self, name: str) -> None:
        """See `Children.stop`.

        Raises:
            EngineFailed: the link is gone.
        """
        await self._ask(_Stop(id=next(self._ids), name=name))

    def states(self) -> dict[str, ChildState]:
        """See `Children.states`; as last reported."""
        return dict(self._states)

    def subscribe(self, listener: Callable[[ChildState], None]) -> None:
        """See `Children.subscribe`."""
        self._listeners.append(listener)

    async def closed(self) -> str:
        """Wait until the link is gone and return why. A front without its supervisor should end then."""
        await asyncio.wait([self._task])
        return self._lost or "closed"

    async def close(self) -> None:
        """Give the link up; what is pending fails."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _ask(self, request: _Start | _Stop) -> ChildState | None:
        if self._lost is not None:
            raise EngineFailed(f"the link to the supervisor is gone: {self._lost}")
        answer: asyncio.Future[ChildState | None] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = answer
        try:
            self._writer.write(request.model_dump_json().encode() + b"\n")
            return await answer
        finally:
            self._waiting.pop(request.id, None)

    async def _receive(self) -> None:
        reason = "closed here"
        try:
            while line := await self._reader.readline():
                self._take(_REPORT.validate_json(line))
            reason = "the supervisor closed it"
        except (OSError, ValueError) as error:  # a broken socket, an oversized line, a message that is none of ours
            reason = f"it broke: {error}"
        finally:
            self._lost = reason
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(EngineFailed(f"the link to the supervisor is gone: {reason}"))

    def _take(self, report: _Answer | _Changed | _Complete) -> None:
        match report:
            case _Complete():
                self._complete.set()
            case _Changed(state=state):
                self._states[state.name] = state
                if self._complete.is_set():
                    for listener in self._listeners:
                        asyncio.get_running_loop().call_soon(listener, state)
            case _Answer():
                self._settle(report)

    def _settle(self, report: _Answer) -> None:
        answer = self._waiting.get(report.id)
        if report.state is not None:
            self._states[report.state.name] = report.state
        if answer is None or answer.done():
            return
        if report.error is not None:
            answer.set_exception(EngineFailed(report.error))
        else:
            answer.set_result(report.state)


class LinkServer:
    """The supervisor's end: serves `children` to one front after another. It tells it of `others` as well, which it can
    neither start nor stop: of itself, so that it knows how the front before it ended."""

    def __init__(self, children: Children, *others: Children) -> None:
        self._children = children
        self._all = (children, *others)
        self._writer: asyncio.StreamWriter | None = None
        self._work: set[asyncio.Task[None]] = set()
        for each in self._all:
            each.subscribe(self._changed)

    async def serve(self, end: socket.socket) -> None:
        """Serve one front until its end of the socketpair is closed. A front already served is cut off."""
        reader, writer = await asyncio.open_unix_connection(sock=end, limit=MAX_LINE_BYTES)
        if self._writer is not None:
            self._writer.transport.abort()
        self._writer = writer
        try:
            for state in (state for each in self._all for state in each.states().values()):
                self._send(writer, _Changed(state=state))
            self._send(writer, _Complete())
            while line := await reader.readline():
                self._begin(writer, _REQUEST.validate_json(line))
        except ValidationError as error:
            _log.error("the front sent something else than a request: %s", error.errors()[0]["msg"])
        except (OSError, ValueError) as error:
            _log.warning("the link to the front broke: %s", error)
        finally:
            writer.transport.abort()
            if self._writer is writer:
                self._writer = None
            with contextlib.suppress(OSError):  # why it broke has been said
                await writer.wait_closed()

    def _begin(self, writer: asyncio.StreamWriter, request: _Start | _Stop) -> None:
        """Work on a request beside others; it goes on when its front dies, so that no child is left half stopped."""
        task = asyncio.create_task(self._work_on(writer, request), name=f"{request.op} for the front")
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _work_on(self, writer: asyncio.StreamWriter, request: _Start | _Stop) -> None:
        state: ChildState | None = None
        error: str | None = None
        if isinstance(request, _Stop):
            await self._children.stop(request.name)
            state = self._children.states().get(request.name)
        elif request.spec.inherit_fd is not None:
            error = "a child of the front cannot inherit a descriptor of the supervisor"
        else:
            state = await self._children.start(request.spec)
        self._send(writer, _Answer(id=request.id, state=state, error=error))

    def _changed(self, state: ChildState) -> None:
        if self._writer is not None:
            self._send(self._writer, _Changed(state=state))

    def _send(self, writer: asyncio.StreamWriter, message: Frozen) -> None:
        if writer.is_closing():
            return
        writer.write(message.model_dump_json().encode() + b"\n")
        if writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            _log.error("the front does not read its link; cutting it off")
            writer.transport.abort()
