"""Makes a response: asks the engine's chat, and gives its answer as Responses have it, whole or event by event."""

import orjson

from infra.errors import EngineFailed, UpstreamRefused
from infra.types import Json
from tasks.channel import Channel
from tasks.corrections.events import chunks_in
from tasks.corrections.types import CHAT, Body, choices_of, inner, object_of, objects
from tasks.generate import generate
from tasks.responses.answer import begun, response_of
from tasks.responses.events import Events
from tasks.responses.refusals import in_response_words
from tasks.types import TaskCall, TaskResult

_TOO_LONG = "context_length_exceeded"
_END = b"\n\n"
_MAX_EVENT_BYTES = 16 * 2**20
_LEADING_BYTES = 64
"""Of blanks that may stand before an answer."""


async def respond(call: TaskCall) -> TaskResult:
    """Send the chat `inputs["request"]` to the engine; `inputs["response"]` is what it repeats of its request.

    With a channel the engine is asked for a stream, and all events but the last go through it; that one is the
    result's `ending`. The result is the response object either way. Where its `truncation` is `auto`, a conversation
    that is too long loses its oldest turns.

    Raises:
        EngineFailed, UpstreamRefused, InvalidRequest: as `generate`.
    """
    request, skeleton = call.inputs["request"], call.inputs["response"]
    assert isinstance(request, dict)
    assert isinstance(skeleton, dict)
    response = begun(skeleton)
    channel = None if call.channel is None else _EventChannel(call.channel, Events(response))
    if channel is not None:
        request = {**request, "stream": True, "stream_options": {"include_usage": True}}
    while True:
        asked = call._replace(inputs={"path": CHAT, "request": request}, channel=channel)
        try:
            result = await generate(asked)
        except UpstreamRefused as error:
            shorter = _shortened(request) if skeleton.get("truncation") == "auto" and error.code == _TOO_LONG else None
            if shorter is None:
                raise in_response_words(error) from error
            request = shorter
            continue
        if channel is not None:
            ended, ending = await channel.finish()
            return TaskResult(orjson.dumps(ended), result.usage, ending=ending)
        assert isinstance(result.value, bytes)
        return TaskResult(orjson.dumps(response_of(response, object_of(result.value))), result.usage)


class _EventChannel:
    """Takes a chat's stream and passes a response's on."""

    def __init__(self, channel: Channel, events: Events) -> None:
        self._channel = channel
        self._events = events
        self._head = events.begin()
        self._rest = b""

    @property
    def started(self) -> bool:
        """See `Channel.started`."""
        return self._channel.started

    async def write(self, data: bytes) -> None:
        """See `Channel.write`.

        Raises:
            EngineFailed: the engine reports an error, or sends no events.
        """
        whole, end, self._rest = self._cut(self._rest + data.replace(b"\r", b""))
        if len(self._rest) > _MAX_EVENT_BYTES:
            raise EngineFailed("the engine sent an event of more than 16 MiB")
        said = b"".join(self._events.chunk(chunk) for chunk in chunks_in(whole + end))
        await self._pass_on(said)

    @staticmethod
    def _cut(come: bytes) -> tuple[bytes, bytes, bytes]:
        """Events, the end of the last of them, and what is not whole yet: so is an answer that is no stream at all."""
        return (b"", b"", come) if _is_object(come) else come.rpartition(_END)

    async def finish(self) -> tuple[Body, bytes]:
        """The chat has ended; gives what `Events.end` gives."""
        said = b""
        if _is_object(self._rest):
            said = self._events.chunk(_as_chunk(object_of(self._rest)))
        elif self._rest.strip():
            raise EngineFailed("the engine broke off its answer in the midst of an event")
        await self._pass_on(said + self._events.finish())
        return self._events.end()

    async def _pass_on(self, said: bytes) -> None:
        head, self._head = self._head, b""
        if head or said:
            await self._channel.write(head + said)


def _is_object(come: bytes) -> bool:
    """Whether an answer is no stream, though one was asked for: there are services that cannot stream."""
    return come[:_LEADING_BYTES].lstrip().startswith(b"{")


def _as_chunk(answer: Body) -> Body:
    """A whole answer as the one chunk of a stream.

    Raises:
        EngineFailed: it is an error.
    """
    if answer.get("error") is not None:
        raise EngineFailed(f"the engine did not answer: {inner(answer, 'error').get('message') or answer['error']}")
    choices: list[Json] = []
    for choice in choices_of(answer):
        message = inner(choice, "message")
        calls: list[Json] = [{**call, "index": place} for place, call in enumerate(objects(message.get("tool_calls")))]
        choices.append({**choice, "delta": {**message, "tool_calls": calls}})
    return {**answer, "choices": choices}


def _shortened(request: Body) -> Body | None:
    """The chat without the older half of its turns; None if only the last one is left.

    A turn begins with what the user says; what the system says stays, the summary of a compaction among it.
    """
    messages = objects(request.get("messages"))
    begins = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    if len(begins) < 2:
        return None
    cut = begins[(len(begins) + 1) // 2]
    kept: list[Json] = [message for message in messages[:cut] if message.get("role") in ("system", "developer")]
    return {**request, "messages": [*kept, *messages[cut:]]}
