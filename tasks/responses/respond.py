"""Makes a response: asks the engine's chat, and gives its answer as Responses have it, whole or event by event."""

import orjson

from infra.errors import EngineFailed, UpstreamRefused
from infra.types import Json
from tasks.channel import Channel
from tasks.corrections.events import chunks_in
from tasks.corrections.types import CHAT, Body, objects
from tasks.generate import generate
from tasks.responses.answer import begun, response_of
from tasks.responses.events import Events
from tasks.types import TaskCall, TaskResult

_TOO_LONG = "context_length_exceeded"
_END = b"\n\n"
_MAX_EVENT_BYTES = 16 * 2**20


async def respond(call: TaskCall) -> TaskResult:
    """Send the chat `inputs["request"]` to the engine; `inputs["response"]` is what it repeats of its request.

    With a channel all events but the last go through it; that one is the result's `ending`. The result is the
    response object either way. Where its `truncation` is `auto`, a conversation that is too long loses its oldest
    turns.

    Raises:
        EngineFailed, UpstreamRefused, InvalidRequest: as `generate`.
    """
    request, skeleton = call.inputs["request"], call.inputs["response"]
    assert isinstance(request, dict)
    assert isinstance(skeleton, dict)
    response = begun(skeleton)
    channel = None if call.channel is None else _EventChannel(call.channel, Events(response))
    while True:
        asked = call._replace(inputs={"path": CHAT, "request": request}, channel=channel)
        try:
            result = await generate(asked)
        except UpstreamRefused as error:
            shorter = _shortened(request) if skeleton.get("truncation") == "auto" and error.code == _TOO_LONG else None
            if shorter is None:
                raise
            request = shorter
            continue
        if channel is not None:
            ended, ending = await channel.finish()
            return TaskResult(orjson.dumps(ended), result.usage, ending=ending)
        assert isinstance(result.value, bytes)
        return TaskResult(orjson.dumps(response_of(response, _object(result.value))), result.usage)


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
        whole, end, self._rest = (self._rest + data.replace(b"\r", b"")).rpartition(_END)
        if len(self._rest) > _MAX_EVENT_BYTES:
            raise EngineFailed("the engine sent an event of more than 16 MiB")
        said = b"".join(self._events.chunk(chunk) for chunk in chunks_in(whole + end))
        await self._pass_on(said)

    async def finish(self) -> tuple[Body, bytes]:
        """The chat has ended; gives what `Events.end` gives."""
        if self._rest.strip():
            raise EngineFailed("the engine broke off its answer in the midst of an event")
        await self._pass_on(self._events.finish())
        return self._events.end()

    async def _pass_on(self, said: bytes) -> None:
        head, self._head = self._head, b""
        if head or said:
            await self._channel.write(head + said)


def _object(raw: bytes) -> Body:
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise EngineFailed("the engine did not answer in JSON") from error
    if not isinstance(answer, dict):
        raise EngineFailed("the engine did not answer with a JSON object")
    return answer


def _shortened(request: Body) -> Body | None:
    """The chat without the older half of its turns; None if only the last one is left.

    A turn begins with what the user says; what the system says before the first one stays.
    """
    messages = objects(request.get("messages"))
    begins = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    if len(begins) < 2:
        return None
    kept: list[Json] = [message for message in messages[: begins[0]] if message.get("role") in ("system", "developer")]
    return {**request, "messages": [*kept, *messages[begins[(len(begins) + 1) // 2] :]]}
