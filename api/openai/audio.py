"""`/v1/audio/transcriptions` and `/v1/audio/translations`: the form's file goes to the disk as it comes.

What is no sound, by its first bytes, is refused before a model is looked for.
"""

from pathlib import PurePath
from typing import Final

from api.asgi import Exchange, Receive, Scope, Send
from api.media.intake import announced_bytes, received
from api.media.length import Lengths
from api.media.visit import MediaVisit
from api.openai.endpoint import Resource
from api.openai.schemas.audio import body_of
from api.services import Services
from infra.containers import HEAD_BYTES, require_sound
from infra.errors import InvalidRequest
from infra.file_store import Incoming
from infra.types import Json

SOUNDS: Final = {"/v1/audio/transcriptions": "transcribe", "/v1/audio/translations": "translate"}
_NAME_CHARS: Final = 200
_HINT: Final = "send a shorter or a compressed recording, or raise server.max_body_mb"


class SoundEndpoint:
    """One of the two paths as an ASGI application."""

    def __init__(self, services: Services, resource: Resource, task: str) -> None:
        self._services = services
        self._resource = resource
        self._task = task
        self._lengths = Lengths(services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await _Visit(self._services, self._resource, self._task, self._lengths)(scope, receive, send)


class _Visit(MediaVisit):
    """One request, with the recording that it has brought."""

    def __init__(self, services: Services, resource: Resource, task: str, lengths: Lengths) -> None:
        super().__init__(services, resource)
        self._task = task
        self._lengths = lengths

    async def _take(self, exchange: Exchange) -> dict[str, Json]:
        announced = announced_bytes(exchange, self._max_body_bytes, _HINT)
        async with self.incoming(self._max_body_bytes, announced, _HINT) as incoming:
            sink = _Sink(incoming)
            form = await received(exchange, "file", sink.write)
            if not form.has_file:
                raise InvalidRequest("the form has no audio: send it as the part 'file'", param="file")
            require_sound(bytes(sink.head))
            ref = await self.keep(incoming)
        file: dict[str, Json] = {
            "blob": ref,
            "name": PurePath(form.filename or "audio").name[:_NAME_CHARS],
            "media_type": form.media_type,
            "bytes": incoming.size_bytes,
        }
        body = body_of(form, self._task, file)
        if body.get("stream") is True:  # it is not split, however long it is
            return body
        seconds = await self._lengths.of(file, body.get("model"), job=self._job)
        return body if seconds is None else body | {"file": {**file, "seconds": seconds}}


class _Sink:
    """Passes the file's bytes on, and remembers how it begins."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self.head = bytearray()

    def write(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            PayloadTooLarge, DiskFull: as `Incoming.write`.
        """
        if len(self.head) < HEAD_BYTES:
            self.head += data[: HEAD_BYTES - len(self.head)]
        self._incoming.write(data)
