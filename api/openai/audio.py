"""`/v1/audio/transcriptions` and `/v1/audio/translations`: the form's file goes to the disk as it comes.

What is no sound, by its first bytes, is refused before a model is looked for.
"""

import asyncio
from pathlib import PurePath
from typing import Final

import orjson

from api.accounting import Account
from api.asgi import Exchange, Receive, Scope, Send
from api.jobs import LANE, is_job
from api.media.intake import announced_bytes, pieces
from api.multipart import Form, FormReader
from api.openai.endpoint import Endpoint, Resource
from api.openai.schemas.audio import body_of
from api.services import Services
from infra.containers import HEAD_BYTES, require_sound
from infra.errors import InvalidRequest, PayloadTooLarge
from infra.file_store import Incoming
from infra.types import Json, RunId

SOUNDS: Final = {"/v1/audio/transcriptions": "transcribe", "/v1/audio/translations": "translate"}
_NAME_CHARS: Final = 200


class SoundEndpoint:
    """One of the two paths as an ASGI application."""

    def __init__(self, services: Services, resource: Resource, task: str) -> None:
        self._services = services
        self._resource = resource
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; afterwards its file is there only if its run is kept."""
        visit = _Visit(self._services, self._resource, self._task)
        try:
            await visit(scope, receive, send)
        finally:
            await visit.leave()


class _Visit(Endpoint):
    """One request, with the file that it has brought."""

    def __init__(self, services: Services, resource: Resource, task: str) -> None:
        super().__init__(services, resource)
        self._task = task
        self._ref: str | None = None
        self._job = False
        self._refused = False

    async def leave(self) -> None:
        """Let go of the file."""
        if (ref := self._ref) is not None:
            kept, keep = self._services.kept, not self._refused
            await asyncio.to_thread(lambda: kept.leave(ref, job=self._job, keep=keep))

    async def _answer(self, exchange: Exchange, run: RunId, account: Account) -> None:
        try:
            await super()._answer(exchange, run, account)
        except Exception:
            self._refused = account.record is None  # it never became a run
            raise

    async def _read(self, exchange: Exchange) -> tuple[bytes, dict[str, Json]]:
        lane = exchange.header(LANE)
        self._job = job = lane is not None and is_job(lane)
        kept = self._services.kept
        announced = announced_bytes(exchange, self._max_body_bytes)
        incoming = await asyncio.to_thread(lambda: kept.begin(self._max_body_bytes, announced, job=job))
        try:
            sink = _Sink(incoming)
            form = await _received(exchange, sink)
            if not form.has_file:
                raise InvalidRequest("the form has no audio: send it as the part 'file'", param="file")
            require_sound(bytes(sink.head))
            self._ref = await asyncio.to_thread(lambda: kept.keep(incoming, job=job))
        finally:
            await asyncio.to_thread(incoming.discard)
        file: dict[str, Json] = {
            "blob": self._ref,
            "name": PurePath(form.filename or "audio").name[:_NAME_CHARS],
            "media_type": form.media_type,
            "bytes": incoming.size_bytes,
        }
        body = body_of(form, self._task, file)
        return orjson.dumps(body), body


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
        try:
            self._incoming.write(data)
        except PayloadTooLarge as error:
            raise PayloadTooLarge(
                "the recording is over the limit of server.max_body_mb: send a shorter or a compressed one",
                param="file",
            ) from error


async def _received(exchange: Exchange, sink: _Sink) -> Form:
    reader = FormReader(exchange.header(b"content-type"), "file", sink.write)
    async for piece in pieces(exchange):
        await asyncio.to_thread(reader.feed, piece)
    return reader.finish()
