"""Speech: sentences go to an engine, and come back as samples, which become a file of the format that was asked for."""

import base64
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

import orjson

from infra.errors import EngineFailed, InvalidRequest
from infra.ffmpeg_audio import FORMS, encode, encoded, resampled
from infra.types import Json
from infra.wav import HEAD_BYTES, read_head
from tasks.refusals import beginning, refusal
from tasks.types import TaskCall, TaskResult
from workers.connection import BrokenOff, Connection

PATH: Final = "/audio/speech"
_PART_BYTES: Final = 256 << 20
"""Of one part's samples: an hour and a half."""
_FAR_BYTES: Final = 512 << 20
_PIECE_BYTES: Final = 1 << 18
_DEFAULT_FORM: Final = "mp3"


class Sound:
    """What an engine says: samples of one channel as they come. They may be read once."""

    def __init__(self, rate_hz: int, pieces: AsyncIterator[bytes]) -> None:
        self.rate_hz = rate_hz
        self.pieces = pieces


async def speak(call: TaskCall) -> TaskResult:
    """Say `inputs["sentences"]` (with `voice` and `speed`) as a file of `inputs["format"]`.

    With a channel it goes to the client as it is spoken, if `inputs["stream"]` is `audio`, or `sse` (OpenAI's events).

    Raises:
        EngineFailed: the engine died, broke off or refused for reasons of its own.
        UpstreamRefused: the request is wrong, in the engine's eyes, such as a voice that there is not.
        InvalidRequest: there is nothing to be heard in it.
    """
    form, stream = str(call.inputs["format"]), call.inputs["stream"]
    async with _asked(call) as sound:
        if call.channel is None or stream is None:
            whole = await encode(sound.pieces, form, sound.rate_hz)
            return TaskResult(whole, media_type=FORMS[form].media_type, units=_chars(call))
        async with contextlib.aclosing(encoded(sound.pieces, form, sound.rate_hz)) as made:
            async for piece in made:
                await call.channel.write(_delta(piece) if stream == "sse" else piece)
    ending = _done(_chars(call)) if stream == "sse" else b""
    return TaskResult(b"", media_type=FORMS[form].media_type, ending=ending, units=_chars(call))


async def speak_part(call: TaskCall) -> TaskResult:
    """A part of a text: `{blob, rate_hz, bytes}`, the blob being its samples. A part may be silent.

    Raises:
        EngineFailed, UpstreamRefused: as `speak`.
    """
    async with _asked(call, silent=True) as sound:
        samples = bytearray()
        async for piece in sound.pieces:
            samples += piece
            if len(samples) > _PART_BYTES:
                raise EngineFailed(f"{call.leased().id} says more than a text of this length can have in it")
    ref = await call.keep(bytes(samples))
    part: dict[str, Json] = {"blob": ref, "rate_hz": sound.rate_hz, "bytes": len(samples)}
    return TaskResult(part, units=_chars(call))


async def join_speech(call: TaskCall) -> TaskResult:
    """The parts, one after the other, as one file of `inputs["format"]`.

    Raises:
        InvalidRequest: there is nothing to be heard in any of them.
        PayloadGone: what was said is not kept any more.
        EngineFailed: a part's result is none.
    """
    form, parts = str(call.inputs["format"]), _parts(call)
    heard = [part for part in parts if part["bytes"]]
    if not heard:
        raise _nothing()
    rate_hz = _number(heard[0], "rate_hz")
    whole = await encode(_joined(call, heard, rate_hz), form, rate_hz)
    return TaskResult(whole, media_type=FORMS[form].media_type)


async def speak_far(call: TaskCall) -> TaskResult:
    """Pass `inputs["request"]` to a far service, and its bytes to the client as they come.

    Raises:
        EngineFailed, UpstreamRefused: as `speak`.
    """
    request = call.inputs["request"]
    assert isinstance(request, dict)
    whole = bytearray()
    async with _answer(call, request) as connection:
        while piece := await _piece(call, connection):
            if call.channel is not None:
                await call.channel.write(piece)
                continue
            whole += piece
            if len(whole) > _FAR_BYTES:
                raise EngineFailed(f"{call.leased().id} answered with more than {_FAR_BYTES >> 20} MiB")
    form = str(request.get("response_format") or _DEFAULT_FORM)
    media_type = FORMS[form].media_type if form in FORMS else "application/octet-stream"
    return TaskResult(bytes(whole), media_type=media_type, units=len(str(request.get("input", ""))))


@contextlib.asynccontextmanager
async def _asked(call: TaskCall, *, silent: bool = False) -> AsyncIterator[Sound]:
    """What the engine says of the step's sentences, begun: unless `silent` is good, too, something is heard.

    Raises:
        EngineFailed, UpstreamRefused, InvalidRequest: as `speak`.
    """
    body = {"input": call.inputs["sentences"], "voice": call.inputs["voice"], "speed": call.inputs["speed"]}
    async with _answer(call, body) as connection:
        begun = b""
        while len(begun) <= HEAD_BYTES and (piece := await _piece(call, connection)):
            begun += piece
        told = read_head(begun)
        if told is None:
            raise EngineFailed(f"{call.leased().id} did not answer with a WAV of 16-bit samples in one channel")
        first = begun[HEAD_BYTES:]
        if not first and not silent:
            raise _nothing()

        async def pieces() -> AsyncIterator[bytes]:
            piece = first
            while piece:
                yield piece
                piece = await _piece(call, connection)

        yield Sound(told.rate_hz, pieces())


@contextlib.asynccontextmanager
async def _answer(call: TaskCall, body: dict[str, Json]) -> AsyncIterator[Connection]:
    """The engine's answer to a body, its head good and its own body unread."""
    engine = call.leased()
    asked = {**body, "model": engine.entry.served_model or engine.entry.name}
    connection = await call.transport.post(engine, PATH, orjson.dumps(asked), call.mark)
    try:
        if connection.status != 200:
            said = await beginning(lambda: _piece(call, connection))
            raise refusal(engine.id, PATH, connection.status, said, ours=False)
        yield connection
    finally:
        connection.let_go()


async def _piece(call: TaskCall, connection: Connection) -> bytes:
    try:
        return await connection.piece()
    except BrokenOff as error:
        raise EngineFailed(f"{call.leased().id} broke off its answer: {error}") from error


async def _joined(call: TaskCall, parts: list[dict[str, Json]], rate_hz: int) -> AsyncIterator[bytes]:
    """The samples of all parts at one rate."""
    for part in parts:
        own_hz = _number(part, "rate_hz")
        pieces = _read(call, str(part["blob"]))
        async with contextlib.aclosing(pieces if own_hz == rate_hz else resampled(pieces, own_hz, rate_hz)) as same:
            async for piece in same:
                yield piece


async def _read(call: TaskCall, ref: str) -> AsyncGenerator[bytes, None]:
    samples = await call.fetch(ref)
    for at in range(0, len(samples), _PIECE_BYTES):
        yield samples[at : at + _PIECE_BYTES]


def _parts(call: TaskCall) -> list[dict[str, Json]]:
    """The parts' results, in order, whether there was a split or not."""
    parts: list[dict[str, Json]] = []
    while (name := f"part-{len(parts) + 1}") in call.inputs:
        part = call.inputs[name]
        if not isinstance(part, dict) or not {"blob", "rate_hz", "bytes"} <= part.keys():
            raise EngineFailed(f"{name} of the request has no result that can be joined; send it again")
        parts.append(part)
    return parts


def _number(part: dict[str, Json], name: str) -> int:
    value = part[name]
    if not isinstance(value, int):
        raise EngineFailed("a part of this request has no result that can be joined; send it again")
    return value


def _nothing() -> InvalidRequest:
    return InvalidRequest(
        "there is nothing in 'input' that this voice can say: send words", param="input", code="nothing_to_say"
    )


def _chars(call: TaskCall) -> int:
    given = call.inputs["sentences"]
    return sum(len(str(each)) for each in given) if isinstance(given, list) else 0


def _delta(piece: bytes) -> bytes:
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()})


def _done(chars: int) -> bytes:
    usage: dict[str, Json] = {"input_tokens": chars, "output_tokens": 0, "total_tokens": chars}
    return _event({"type": "speech.audio.done", "usage": usage})


def _event(event: dict[str, Json]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(event)
