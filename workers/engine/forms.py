"""A request to the engine process as an `Ask`: a JSON object, or a form with files, within limits."""

import threading
from typing import Final

import orjson
from aiohttp import BodyPartReader, web

from infra.errors import InvalidRequest, PayloadTooLarge
from infra.types import Json
from workers.engine.runtimes.protocol import Ask, Upload

MOST_BYTES: Final = 1 << 30
"""Of one request. Only the front asks, and it has a limit of its own."""
MOST_PARTS: Final = 2048
_FIELD_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 20


async def read_ask(request: web.Request, gone: threading.Event) -> Ask:
    """The whole request.

    Raises:
        InvalidRequest: it is neither JSON nor a form, or cut off.
        PayloadTooLarge: it is over a limit.
    """
    if request.content_type == "multipart/form-data":
        return await _form(request, gone)
    data = bytearray()
    async for piece in request.content.iter_chunked(_PIECE_BYTES):
        data += piece
        _limit(len(data), MOST_BYTES)
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the request's body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(body, dict):
        raise InvalidRequest("the request's body must be a JSON object")
    return Ask(body, gone=gone)


async def _form(request: web.Request, gone: threading.Event) -> Ask:
    fields: dict[str, list[Json]] = {}
    files: list[Upload] = []
    total_bytes = 0
    try:
        reader = await request.multipart()
        for _ in range(MOST_PARTS):
            part = await reader.next()
            if part is None:
                return Ask(dict(fields), tuple(files), gone)
            if not isinstance(part, BodyPartReader) or not part.name:
                raise InvalidRequest("a part of the form has no name")
            limit_bytes = MOST_BYTES - total_bytes if part.filename is not None else _FIELD_BYTES
            data = await _part(part, limit_bytes)
            total_bytes += len(data)
            if part.filename is None:
                fields.setdefault(part.name, []).append(data.decode(errors="replace"))
            else:
                files.append(Upload(part.name, part.filename, part.headers.get("Content-Type", ""), data))
    except ValueError as error:
        raise InvalidRequest(f"the form cannot be read: {error}") from error
    raise InvalidRequest(f"the form has more than {MOST_PARTS} parts")


async def _part(part: BodyPartReader, limit_bytes: int) -> bytes:
    data = bytearray()
    while piece := await part.read_chunk(_PIECE_BYTES):
        data += piece
        _limit(len(data), limit_bytes)
    return bytes(data)


def _limit(size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise PayloadTooLarge(f"a part of the request is over {limit_bytes} bytes")
