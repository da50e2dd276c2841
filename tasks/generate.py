"""Asks an engine and gives its answer: streamed through as it comes, whole as bytes, or read for a later step."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import orjson

from infra.errors import EngineFailed, InvalidRequest
from infra.types import Json
from tasks.channel import Channel
from tasks.corrections.table import Mending, complete, mend
from tasks.corrections.types import CHAT, Traits, object_of, traits_of
from tasks.corrections.usage import usage_in
from tasks.refusals import beginning, refusal
from tasks.renaming import RenamedEvents, renamer
from tasks.types import TaskCall, TaskResult, Usage
from workers.connection import BrokenOff, Connection
from workers.live import Engine

_TAIL_BYTES = 4096
"""Of a stream that is kept for the usage in its last events."""
_FAR = Traits(service=True)


class Feeding(Protocol):
    """Changes a stream on its way, in whatever pieces it comes."""

    def feed(self, piece: bytes) -> bytes:
        """What can be sent on now."""
        ...

    def finish(self) -> bytes:
        """What is left at the end."""
        ...


async def generate(call: TaskCall) -> TaskResult:
    """Send `inputs["request"]` to `inputs["path"]` below the engine's `/v1`.

    With a channel the answer goes to the client as it comes and the result is empty, else the result is the answer's
    body. What llama.cpp gets wrong for an OpenAI client is put right on the way (`tasks/corrections`).

    Raises:
        EngineFailed: the engine died, broke off or refused for reasons of its own.
        UpstreamRefused: the request is wrong, in the engine's eyes.
        InvalidRequest: the answer shows that the request cannot be met.
    """
    path, request, engine = call.inputs["path"], call.inputs["request"], call.leased()
    assert isinstance(path, str)
    assert isinstance(request, dict)
    mending = mend(path, request, traits_of(engine.props) if engine.local else _FAR)
    response = await _asked(call, path, mending.body if mending else request)
    try:
        if call.channel is not None:
            return TaskResult(b"", await _pass_on(call, response, mending))
        raw = await response.read()
    except BrokenOff as error:
        raise _broken_off(engine, error) from error
    finally:
        response.let_go()
    body = _whole(raw, path, mending, engine)
    return TaskResult(body, usage_in(body if mending and mending.touches_answer else raw))


async def ask(call: TaskCall, path: str, request: dict[str, Json]) -> tuple[dict[str, Json], Usage | None]:
    """One question to the engine, its answer as an object.

    Raises:
        EngineFailed, UpstreamRefused: as `generate`.
    """
    response = await _asked(call, path, request)
    try:
        raw = await response.read()
    except BrokenOff as error:
        raise _broken_off(call.leased(), error) from error
    finally:
        response.let_go()
    return object_of(raw, call.leased().id), usage_in(raw)


async def _asked(call: TaskCall, path: str, request: dict[str, Json]) -> Connection:
    """The engine's answer, its head good and its body unread."""
    engine = call.leased()
    # Not in place: the request is the plan's, which may be tried elsewhere and is shown to whoever looks.
    body = {**request, "model": engine.entry.served_model or engine.entry.name}
    try:
        text = orjson.dumps(body)
    except orjson.JSONEncodeError as error:  # it reads deeper than it writes
        raise InvalidRequest("the request is nested too deeply: flatten it, 250 levels are the most") from error
    response = await call.transport.post(engine, path, text)
    if response.status == 200:
        return response
    try:
        said = await beginning(response.piece)
    except BrokenOff as error:
        raise _broken_off(engine, error) from error
    finally:
        response.let_go()
    raise refusal(engine.id, path, response.status, said, ours=engine.local)


def _broken_off(engine: Engine, error: BrokenOff) -> EngineFailed:
    return EngineFailed(f"{engine.id} broke off its answer: {error}")


def _whole(raw: bytes, path: str, mending: Mending | None, engine: Engine) -> bytes:
    """The answer's body as the client gets it."""
    if mending is not None and mending.touches_answer:
        return mending.answer(raw)
    if engine.local:
        return complete(raw) if path == CHAT else raw
    rename = _renamer(engine)
    return rename(raw) if rename else raw


async def _pass_on(call: TaskCall, response: Connection, mending: Mending | None) -> Usage | None:
    """Every piece as it comes, mended where it must be; the last ones are kept for the usage they carry."""
    channel, engine = call.channel, call.leased()
    assert channel is not None
    mender = mending.stream() if mending is not None and mending.touches_answer else None
    rename = None if engine.local else _renamer(engine)
    if mender is None and rename is None:
        return usage_in(await _copy(response, channel))
    steps: list[Feeding] = [step for step in (mender, RenamedEvents(rename) if rename else None) if step is not None]
    tail = _Tail()
    while piece := await response.piece():
        tail.add(piece)
        if fed := _through(steps, piece):
            await channel.write(fed)
    for place, step in enumerate(steps):
        if rest := _through(steps[place + 1 :], step.finish()):
            await channel.write(rest)
    return (mender.usage if mender is not None else None) or usage_in(tail.text())


async def _copy(response: Connection, channel: Channel) -> bytes:
    """Every piece as it is; the stream's end is returned."""
    tail = _Tail()
    while piece := await response.piece():
        tail.add(piece)
        await channel.write(piece)
    return tail.text()


class _Tail:
    """The last pieces of a stream, no more of them than it takes to hold `_TAIL_BYTES`."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size_bytes = 0

    def add(self, piece: bytes) -> None:
        pieces = self._pieces
        pieces.append(piece)
        self._size_bytes += len(piece)
        while self._size_bytes - len(pieces[0]) >= _TAIL_BYTES:
            self._size_bytes -= len(pieces.popleft())

    def text(self) -> bytes:
        return b"".join(self._pieces)


def _through(steps: Sequence[Feeding], piece: bytes) -> bytes:
    for step in steps:
        piece = step.feed(piece)
    return piece


def _renamer(engine: Engine) -> Callable[[bytes], bytes] | None:
    served, ours = engine.entry.served_model, engine.entry.name
    return renamer(served, ours) if served and served != ours else None
