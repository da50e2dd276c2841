"""`POST /v1/ocr` and `/v1/ocr/batch`: from what a client sends, in a form or in JSON, to the request to be planned."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from api.asgi import Exchange, Receive, Scope, Send, parse_object
from api.media.given import Given, clean_name, fetch, read_given
from api.media.parts import parse_parts
from api.media.visit import MediaVisit
from api.multipart import is_form
from api.openai.endpoint import Resource
from api.openai.schemas.ocr import MAX_FILES, check_fields, how
from api.services import Services
from infra.egress import Egress
from infra.errors import InvalidRequest, NotInstalled, PayloadTooLarge, UserError
from infra.types import Json
from workers.documents.opening import count_pages
from workers.documents.types import sniff
from workers.types import Capability, ModelEntry, ModelFormat

READS: Final = {"/v1/ocr": False, "/v1/ocr/batch": True}
"""The paths, and whether they take several documents."""
_READERS: Final = 2
"""Documents whose pages are counted at once, each in a process of its own."""
_OTHER_PARTS: Final = 16
_NUMBERS: Final = ("dpi",)
_KINDS: Final = "PNG, JPEG, WebP, TIFF, BMP and GIF images and PDF documents are read"


class OcrEndpoint:
    """One of the two routes. A document that cannot be read is an error of the request, in a `batch` of its own."""

    def __init__(self, services: Services, resource: Resource, *, batch: bool, egress: Egress | None = None) -> None:
        self._services = services
        self._resource = resource
        self._desk = Desk(services, egress or Egress(), batch=batch)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await _Visit(self._services, self._resource, self._desk)(scope, receive, send)


class _Visit(MediaVisit):
    """One request, with the documents that it has brought."""

    def __init__(self, services: Services, resource: Resource, desk: "Desk") -> None:
        super().__init__(services, resource)
        self._desk = desk

    async def _take(self, exchange: Exchange) -> dict[str, Json]:
        raw = await exchange.body(self._max_body_bytes)
        return await self._desk.accept(exchange.header(b"content-type"), raw, self.put)


Put = Callable[[bytes], Awaitable[str]]


class Desk:
    """Makes of what a client sends the request that is planned."""

    def __init__(self, services: Services, egress: Egress, *, batch: bool) -> None:
        self._services = services
        self._egress = egress
        self._batch = batch
        self._max_bytes = services.settings.server.max_body_mb * 2**20
        self._reading = asyncio.Semaphore(_READERS)

    async def accept(self, content_type: str | None, raw: bytes, put: Put) -> dict[str, Json]:
        """The request as `schemas.ocr.normal` takes it; `put` keeps a document where its steps find it.

        Raises:
            UserError: it is wrong, or its one document cannot be read.
        """
        fields, files = await asyncio.to_thread(self._taken, content_type, raw)
        entry = self._model(fields)
        documents = await self._documents(files, put)
        return {"model": entry.name, "files": documents, "batch": self._batch, **how(fields)}

    def _taken(self, content_type: str | None, raw: bytes) -> tuple[dict[str, Json], list[Given]]:
        """The checked fields and the files."""
        name = "files" if self._batch else "file"
        if is_form(content_type):
            return self._from_form(content_type, raw, name)
        fields = parse_object(raw)
        check_fields(fields, batch=self._batch)
        values = fields[name]
        listed = values if self._batch and isinstance(values, list) else [values]
        return fields, [read_given(value, name, number) for number, value in enumerate(listed, 1)]

    def _from_form(self, content_type: str | None, raw: bytes, name: str) -> tuple[dict[str, Json], list[Given]]:
        form = parse_parts(content_type, raw, MAX_FILES + _OTHER_PARTS)
        fields: dict[str, Json] = {key: _number(key, text) for key, text in form.fields.items() if text}
        wrong = next((file.field for file in form.files if file.field not in (name, f"{name}[]")), None)
        if wrong is not None:
            raise InvalidRequest(f"the form's files are called {name!r}, not {wrong[:50]!r}", param=wrong[:50])
        if len(form.files) > (MAX_FILES if self._batch else 1):
            most = f"{MAX_FILES} are the most" if self._batch else "send several to /v1/ocr/batch"
            raise InvalidRequest(f"the form has {len(form.files)} files; {most}", param=name)
        if form.files:  # the files stand for what they would be in JSON
            fields[name] = ["-"] * len(form.files) if self._batch else "-"
        check_fields(fields, batch=self._batch)
        return fields, [
            Given(clean_name(file.filename, number), file.data) for number, file in enumerate(form.files, 1)
        ] or [read_given(fields[name], name, 1)]

    def _model(self, fields: dict[str, Json]) -> ModelEntry:
        """The model that is named, else the first one that reads documents.

        Raises:
            ModelNotFound: there is none of that name.
            NotInstalled: there is none at all.
        """
        named = fields.get("model") or fields.get("engine")
        entries = self._services.shelf.catalogue.entries
        entry = next((each for each in entries if Capability.OCR in each.capabilities), None)
        if named:
            entry = self._services.shelf.catalogue.get(str(named))
        if entry is None:
            raise NotInstalled(
                "this install has no model that reads documents: install the packages rapidocr and onnxruntime, and "
                "restart it"
            )
        if entry.format is ModelFormat.SERVICE:
            raise NotInstalled(f"model '{entry.name}' is served far away, where documents cannot be sent")
        return entry

    async def _documents(self, files: Sequence[Given], put: Put) -> list[Json]:
        """Each file as the planner takes it.

        Raises:
            UserError: one cannot be read, where it is the only one.
        """
        described: list[Json] = []
        left_bytes = self._max_bytes
        for file in files:
            try:
                data = file.data
                if file.url is not None:
                    data = await fetch(file.url, self._egress, left_bytes, param="file")
                left_bytes -= len(data)
                pages = await self._pages(data)
            except UserError as error:
                if not self._batch:
                    raise
                kind = "PayloadTooLarge" if isinstance(error, PayloadTooLarge) else "InvalidRequest"
                said: dict[str, Json] = {"message": error.message, "code": error.code, "kind": kind}
                described.append({"name": file.name, "error": said})
                continue
            described.append({"name": file.name, "pages": pages, "blob": await put(data)})
        return described

    async def _pages(self, data: bytes) -> int:
        """The number of a document's pages.

        Raises:
            InvalidRequest, PayloadTooLarge: it is empty, no document, or one that cannot be opened.
        """
        if not data:
            raise InvalidRequest("this file is empty", param="file", code="empty_file")
        kind = sniff(data)
        if kind is None:
            raise InvalidRequest(
                f"this file is neither an image nor a PDF: {_KINDS}", param="file", code="unsupported_type"
            )
        async with self._reading:
            return await asyncio.to_thread(count_pages, data, kind)


def _number(name: str, text: str) -> Json:
    """A form's field: all of them are texts."""
    if name == "structured":
        return text.lower() in ("1", "true", "yes", "on")
    return int(text) if name in _NUMBERS and text.isdecimal() and len(text) < 20 else text
