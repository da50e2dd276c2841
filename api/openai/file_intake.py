"""`POST /v1/files` and `POST /v1/uploads/{id}/parts`, on plain ASGI: bodies go to the disk as they come, whatever size.

While bytes come the client has time; only one that sends nothing for `server.body_timeout_s` is closed.
"""

import re
from typing import Any, get_args

from pydantic import BaseModel

from api.asgi import ASGIApp, Exchange
from api.media.admission import answering
from api.media.intake import announced_bytes, received
from api.multipart import Form
from api.openai.file_shapes import (
    Purpose,
    checked_filename,
    checked_purpose,
    expiry_of,
    file_object,
    lasts_s,
    part_object,
)
from api.services import Services
from infra.errors import InvalidRequest
from infra.file_rows import NewFile
from infra.tokens import Key
from infra.types import KeyName, UploadId
from infra.upload_rows import PART_BYTES

_PARTS = re.compile(r"/v1/uploads/([^/]+)/parts")
_FIELDS = frozenset({"purpose", "expires_after[anchor]", "expires_after[seconds]"})


class FileIntake:
    """Finds who takes a body that comes as a file."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._desk = services.files

    def find(self, method: str, path: str) -> ASGIApp | None:
        """Who answers there; None if nobody here does."""
        if method != "POST":
            return None
        if path == "/v1/files":
            return answering(self._services, self._file)
        parts = _PARTS.fullmatch(path)
        if parts is None:
            return None
        upload = UploadId(parts[1])
        return answering(self._services, lambda exchange, key: self._part(exchange, key, upload))

    async def _file(self, exchange: Exchange, key: Key) -> BaseModel:
        files, most_bytes = self._desk.files, self._services.settings.files.max_file_mb << 20
        hint = "send it in parts (POST /v1/uploads), or raise files.max_file_mb"
        announced = announced_bytes(exchange, most_bytes, hint)
        incoming = await self._desk.run(lambda: files.begin(key.name, most_bytes, announced, hint))
        try:
            form = await received(exchange, "file", incoming.write, self._desk.run)
            new = _new_file(form, key.name)
            return file_object(await self._desk.run(lambda: files.add(incoming, new)))
        finally:
            await self._desk.run(incoming.discard)

    async def _part(self, exchange: Exchange, key: Key, upload: UploadId) -> BaseModel:
        uploads, owner = self._desk.uploads, None if key.scope == "admin" else key.name
        announced = announced_bytes(exchange, PART_BYTES, "send it in more parts")
        incoming = await self._desk.run(lambda: uploads.begin_part(upload, owner, announced))
        try:
            form = await received(exchange, "data", incoming.write, self._desk.run)
            if not form.has_file:
                raise InvalidRequest("the body has no part called data", param="data")
            _require_known(form, frozenset())
            return part_object(await self._desk.run(lambda: uploads.add_part(upload, owner, incoming)))
        finally:
            await self._desk.run(incoming.discard)


def _new_file(form: Form, key: KeyName) -> NewFile:
    """What a form says of its file.

    Raises:
        InvalidRequest: something is missing, wrong or unknown.
    """
    if not form.has_file or form.filename is None:
        raise InvalidRequest("the body has no file: send it as the part called file, with a file name", param="file")
    _require_known(form, _FIELDS)
    purpose = checked_purpose(form.fields.get("purpose"))
    filename = checked_filename(form.filename)
    return NewFile(key, filename, purpose, lasts_s=lasts_s(purpose, expiry_of(form.fields)))


def _require_known(form: Form, known: frozenset[str]) -> None:
    unknown = next((name for name in (*form.fields, *form.lists) if name not in known), None)
    if unknown is not None:
        raise InvalidRequest(f"there is no field {unknown[:100]!r} here: leave it out", param=unknown[:100])


def operations() -> dict[str, dict[str, Any]]:
    """These routes for the server's OpenAPI document, by path: the framework does not know them."""
    expiry = {f"expires_after[{name}]": {"type": kind} for name, kind in (("anchor", "string"), ("seconds", "integer"))}
    file = {"file": _BINARY, "purpose": {"type": "string", "enum": list(get_args(Purpose))}}
    parameter = {"name": "upload", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "/v1/files": _operation("Send a file", file | expiry, ["file", "purpose"], []),
        "/v1/uploads/{upload}/parts": _operation("Send a part of an upload", {"data": _BINARY}, ["data"], [parameter]),
    }


_BINARY = {"type": "string", "format": "binary"}
_ANSWERS = {
    "200": "The file or part, in OpenAI's shape.",
    "400": "The form is wrong, or the key's quota has no room.",
    "401": "No key, or one that is unknown or revoked.",
    "404": "There is no such upload.",
    "413": "It is over the limit of the section [files].",
    "429": "The key is over its limit; `Retry-After` says when to come back.",
    "507": "The disk, or the quota of all files, has no room.",
}


def _operation(
    summary: str, fields: dict[str, Any], required: list[str], parameters: list[dict[str, Any]]
) -> dict[str, Any]:
    form = {"type": "object", "properties": fields, "required": required}
    return {
        "summary": summary,
        "operationId": summary.lower().replace(" ", "_"),
        "tags": ["files"],
        "parameters": parameters,
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": form}}},
        "responses": {
            status: {"description": text, "content": {"application/json": {}}} for status, text in _ANSWERS.items()
        },
    }
