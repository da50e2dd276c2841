"""`POST /v1/loras/upload`: an adapter as a form, as JSON with base64 or a URL, or as the body itself, on plain ASGI.

It goes to the disk as it comes, and what is no adapter is refused as soon as its first bytes say so.
"""

import asyncio
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from api.asgi import ASGIApp, Exchange, parse_object
from api.media.admission import answering
from api.media.given import read_given
from api.media.intake import announced_bytes, pieces, received
from api.media.lora_sources import LoraFile, fetch
from api.multipart import is_form
from api.services import Services
from infra.egress import Egress
from infra.errors import InvalidRequest
from infra.lora_rows import NewLora, checked_base_model, checked_name
from infra.tokens import Key
from infra.types import Frozen

PATH: Final = "/v1/loras/upload"
_HINT: Final = "raise loras.max_mb"
_WORDS: Final = ("name", "base_model")
_CONTENTS: Final = ("data", "file", "url")


class LoraUploaded(Frozen):
    """What has been kept; `existed`: the key had this content already."""

    id: str
    bytes: int
    existed: bool
    name: str | None = None


class _Said(NamedTuple):
    """What a request says of its adapter."""

    name: str | None
    base_model: str | None


class LoraIntake:
    """Finds who takes an adapter."""

    def __init__(self, services: Services, egress: Egress | None = None) -> None:
        self._services = services
        self._desk = services.files
        self._egress = egress or Egress()

    def find(self, method: str, path: str) -> ASGIApp | None:
        """Who answers there; None if nobody here does."""
        return answering(self._services, self._upload) if (method, path) == ("POST", PATH) else None

    async def _upload(self, exchange: Exchange, key: Key) -> LoraUploaded:
        desk, most_bytes = self._desk, self._services.settings.loras.max_mb << 20
        announced = announced_bytes(exchange, most_bytes, _HINT)
        incoming = await desk.run(lambda: desk.files.begin(key.name, most_bytes, announced, _HINT))
        file = LoraFile(incoming)
        try:
            said = await self._received(exchange, file)
            facts = file.finish()
            new = NewLora(key, facts.rank, said.name, said.base_model)
            lora, existed = await desk.run(lambda: desk.loras.add(incoming, new))
            return LoraUploaded(id=lora.ref, bytes=lora.size_bytes, existed=existed, name=lora.name)
        finally:
            await desk.run(incoming.discard)

    async def _received(self, exchange: Exchange, file: LoraFile) -> _Said:
        kind = exchange.header(b"content-type")
        if is_form(kind):
            form = await received(exchange, "file", file.write, self._desk.run)
            if not form.has_file:
                raise InvalidRequest("the form has no file: send it as the part called file", param="file")
            return _said({**form.fields, **form.lists}, _WORDS)
        if kind is not None and "json" in kind.lower():
            return await self._from_json(exchange, file)
        query = exchange.scope["query_string"].decode("latin-1")
        said = _said(dict(parse_qsl(query, keep_blank_values=True)), _WORDS)
        async for piece in pieces(exchange):
            await self._desk.run(partial(file.write, piece))
        return said

    async def _from_json(self, exchange: Exchange, file: LoraFile) -> _Said:
        body = parse_object(await exchange.body(self._services.settings.server.max_body_mb << 20))
        said = _said(body, (*_WORDS, *_CONTENTS))
        contents = [body[name] for name in _CONTENTS if body.get(name) is not None]
        if len(contents) != 1:
            raise InvalidRequest("send the adapter as data (base64) or as a url: one of them", param="data")
        given = await asyncio.to_thread(read_given, contents[0], "data", 1)
        if given.url is None:
            await self._desk.run(lambda: file.write(given.data))
        else:
            await fetch(given.url, self._egress, file.write, param="url")
        return said


def _said(fields: dict[str, Any], known: tuple[str, ...]) -> _Said:
    """The name and the base model among the fields.

    Raises:
        InvalidRequest: one cannot be used, or is unknown.
    """
    unknown = next((name for name in fields if name not in known), None)
    if unknown is not None:
        raise InvalidRequest(f"there is no field {unknown[:100]!r} here: leave it out", param=unknown[:100])
    values = {word: fields.get(word) or None for word in _WORDS}
    wrong = next((word for word, value in values.items() if not isinstance(value, str | None)), None)
    if wrong is not None:
        raise InvalidRequest(f"{wrong} is a text", param=wrong)
    return _Said(checked_name(values["name"]), checked_base_model(values["base_model"]))


def operations() -> dict[str, dict[str, Any]]:
    """This route for the server's OpenAPI document, by path: the framework does not know it."""
    words = {word: {"type": "string"} for word in _WORDS}
    binary = {"type": "string", "format": "binary"}
    form = {"type": "object", "properties": {"file": binary} | words, "required": ["file"]}
    contents = {name: {"type": "string"} for name in _CONTENTS}
    body = {
        "multipart/form-data": {"schema": form},
        "application/json": {"schema": {"type": "object", "properties": contents | words}},
        "application/octet-stream": {"schema": binary},
    }
    operation = {
        "summary": "Send a LoRA adapter",
        "operationId": "send_a_lora_adapter",
        "tags": ["loras"],
        "parameters": [{"name": word, "in": "query", "schema": {"type": "string"}} for word in _WORDS],
        "requestBody": {"required": True, "content": body},
        "responses": {
            status: {"description": text, "content": {"application/json": {}}} for status, text in _ANSWERS.items()
        },
    }
    return {PATH: operation}


_ANSWERS: Final = {
    "200": "Its id (`sha256:…`), its size, and whether the key had it already.",
    "400": "It is no LoRA adapter in safetensors, the name cannot be used, or the key's quota has no room.",
    "401": "No key, or one that is unknown or revoked.",
    "409": "The name is another adapter's.",
    "413": "It is over `loras.max_mb`.",
    "429": "The key is over its limit; `Retry-After` says when to come back.",
    "507": "The disk, or the quota of all files, has no room.",
}
