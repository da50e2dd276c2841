"""A transcript that reaches its client while it is heard, in OpenAI's events."""

from collections.abc import AsyncIterator
from typing import Final

import orjson

from infra.errors import EngineFailed
from infra.types import Json
from tasks.refusals import beginning, refusal
from tasks.transcribe import asked, open_recording, sent
from tasks.types import TaskCall, TaskResult
from workers.engine.hearing import DONE, EVENTS_TYPE, delta_event, done_event
from workers.transport import FormAnswer

_EVENT_BYTES: Final = 4 << 20
"""Of one event: a transcript of two hours has a twentieth of it."""
_END: Final = b"\n\n"
_LAST: Final = b"[DONE]"


async def stream_transcript(call: TaskCall) -> TaskResult:
    """Send `inputs["file"]` with `inputs["fields"]` to `inputs["path"]`, and pass on what is heard as it is told.

    The last event is the result's `ending`. What an engine that streams nothing answers, a far one, is one delta.

    Raises:
        PayloadGone: the recording is not kept any more.
        EngineFailed: the engine died, broke off or refused for reasons of its own.
        UpstreamRefused: the request is wrong, in the engine's eyes.
    """
    file, fields, path, engine = call.inputs["file"], call.inputs["fields"], str(call.inputs["path"]), call.leased()
    assert isinstance(file, dict)
    assert isinstance(fields, list)
    with open_recording(file, call.stores) as content:
        async with call.transport.form(
            engine, path, asked(engine, fields), sent(file, content), mark=call.mark
        ) as answer:
            if answer.status != 200:
                raise refusal(engine.id, path, answer.status, await beginning(answer.piece), ours=engine.local)
            return await _passed_on(call, answer)


async def _passed_on(call: TaskCall, answer: FormAnswer) -> TaskResult:
    channel, ending, duration_s = call.channel, b"", 0.0
    assert channel is not None
    async for data in _events(answer):
        event = _read(call, data)
        if error := event.get("error"):
            raise EngineFailed(f"{call.leased().id} broke off its transcript: {_reason(error)}")
        if "type" not in event and isinstance(event.get("text"), str):
            text, usage = str(event["text"]), event.get("usage")
            await channel.write(delta_event(text))
            ending = done_event(text, {"usage": usage} if _counts_tokens(usage) else {})
        elif ending or event.get("type") == DONE or data == _LAST:
            ending += b"data: " + data + _END
            if len(ending) > _EVENT_BYTES:
                raise EngineFailed(f"{call.leased().id} ended its transcript with more than {_EVENT_BYTES >> 20} MiB")
            duration_s = _seconds(event.get("duration")) or duration_s
        else:
            await channel.write(b"data: " + data + _END)
    if not ending:
        raise EngineFailed(f"{call.leased().id} broke off its transcript before it was whole")
    if not channel.started:
        await channel.write(delta_event(""))
    return TaskResult(b"", media_type=EVENTS_TYPE, ending=ending, units=duration_s)


async def _events(answer: FormAnswer) -> AsyncIterator[bytes]:
    """The data of each event, or the whole body where there are no events in it.

    Raises:
        EngineFailed: it broke off, or one is too long.
    """
    rest, streamed = b"", False
    while piece := await answer.piece():
        *whole, rest = (rest + piece.replace(b"\r", b"")).split(_END)
        streamed = streamed or bool(whole)
        if len(rest) > _EVENT_BYTES:
            raise EngineFailed(f"the engine sent an event of more than {_EVENT_BYTES >> 20} MiB")
        for event in whole:
            if data := _data(event):
                yield data
    if data := _data(rest) or (b"" if streamed else rest.strip()):
        yield data


def _data(event: bytes) -> bytes:
    """What its lines of data say; nothing of a comment."""
    lines = [line[len(b"data:") :].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)


def _read(call: TaskCall, data: bytes) -> dict[str, Json]:
    if data == _LAST:
        return {}
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise EngineFailed(f"{call.leased().id} sent an event that is no JSON") from error
    return event if isinstance(event, dict) else {}


def _reason(error: Json) -> Json:
    return error.get("message") if isinstance(error, dict) else error


def _counts_tokens(usage: Json) -> bool:
    """Whether it is the one kind of usage that an event has."""
    return isinstance(usage, dict) and "input_tokens" in usage


def _seconds(duration: Json) -> float:
    return float(duration) if isinstance(duration, int | float) else 0.0
