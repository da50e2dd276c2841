"""`POST /v1/images/generations`, `/edits` and `/variations`: from what a client sends, as JSON or as a form, to the
request to be planned."""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from api.asgi import Exchange, Receive, Scope, Send, parse_object
from api.media.given import Given, clean_name, fetch, read_given
from api.media.loras import LoraDesk
from api.media.making import MakingVisit, maker, prepare
from api.media.parts import parse_parts
from api.multipart import is_form
from api.openai.endpoint import Resource
from api.openai.schemas.images import Task, check_fields, form_values
from api.services import Services
from infra.egress import Egress
from infra.errors import InvalidRequest
from infra.pictures import Picture, measure
from infra.types import Json
from workers.engine.drawing import MAX_INPUT_PIXELS
from workers.types import Capability

DRAWS: Final[dict[str, Task]] = {
    "/v1/images/generations": "generate",
    "/v1/images/edits": "edit",
    "/v1/images/variations": "variation",
}
"""The paths, and what is done there."""
PICTURES: Final[dict[Task, tuple[str, ...]]] = {"generate": (), "edit": ("image", "mask"), "variation": ("image",)}
"""The fields of each that are pictures."""
_PARTS: Final = 40
_UNUSED: Final = ("image", "mask", "loras")


class ImagesEndpoint:
    """One of the three routes."""

    def __init__(self, services: Services, resource: Resource, task: Task, egress: Egress | None = None) -> None:
        self._services = services
        self._resource = resource
        self._task = task
        self._egress = egress or Egress()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await _Visit(self._services, self._resource, self._egress, self._task)(scope, receive, send)


class Taken(NamedTuple):
    """What a client sent: its checked fields, and its pictures by name."""

    fields: dict[str, Json]
    pictures: dict[str, Given]


class _Visit(MakingVisit):
    """One request, with the pictures and adapters that it has brought."""

    def __init__(self, services: Services, resource: Resource, egress: Egress, task: Task) -> None:
        super().__init__(services, resource)
        self._egress = egress
        self._task = task

    async def _take(self, exchange: Exchange) -> dict[str, Json]:
        raw = await exchange.body(self._max_body_bytes)
        fields, pictures = await asyncio.to_thread(taken, exchange.header(b"content-type"), raw, self._task)
        entry = maker(self._services, fields.get("model"), Capability.IMAGES)
        body: dict[str, Json] = {
            name: value for name, value in fields.items() if name not in _UNUSED and value is not None
        }
        body |= {"model": entry.name, "task": self._task}
        prepare(body, fields, entry)
        found = {name: await self._content(given) for name, given in pictures.items()}
        measured(found)
        for name, data in found.items():
            body[name] = {"blob": await self.put(data)}
        if fields.get("loras"):
            key = self._services.auth.require(exchange.headers, "user")
            body["loras"] = await LoraDesk(self._services, self._egress).resolve(fields["loras"], key, self)
        return body

    async def _content(self, given: Given) -> bytes:
        return given.data if given.url is None else await fetch(given.url, self._egress, self._max_body_bytes)


def taken(content_type: str | None, raw: bytes, task: Task) -> Taken:
    """The checked fields and the pictures of a request's body.

    Raises:
        InvalidRequest: something is wrong with them; `param` names it.
    """
    if not is_form(content_type):
        fields = parse_object(raw)
        check_fields(fields, task)
        return Taken(fields, _named(fields, PICTURES[task]))
    form = parse_parts(content_type, raw, _PARTS)
    fields = form_values(form.fields)
    pictures: dict[str, Given] = {}
    for file in form.files:
        name = file.field.removesuffix("[]")
        if name not in PICTURES[task]:
            raise InvalidRequest(f"{file.field[:50]!r} is no file that is taken here", param=file.field[:50])
        if name in pictures:
            raise InvalidRequest(f"{name} is one picture: these models start from one", param=name)
        pictures[name] = Given(clean_name(file.filename, 1), file.data)
        fields[name] = "-"  # the file stands for what it would be in JSON
    check_fields(fields, task)
    return Taken(fields, pictures | _named(fields, (name for name in PICTURES[task] if name not in pictures)))


def _named(fields: dict[str, Json], names: Iterable[str]) -> dict[str, Given]:
    """The pictures that come as texts: addresses, or their bytes in base64."""
    return {name: read_given(fields[name], name, 1) for name in names if fields.get(name)}


def measured(pictures: dict[str, bytes]) -> None:
    """Look at the heads of a request's pictures; nothing is decoded.

    Raises:
        InvalidRequest: one is no picture that is read here, or too large, or the mask is of another size.
    """
    sizes = {name: _picture(data, name) for name, data in pictures.items()}
    image, mask = sizes.get("image"), sizes.get("mask")
    if image is not None and mask is not None and image[1:] != mask[1:]:
        raise InvalidRequest(
            f"the mask has {mask.width} x {mask.height} pixels and the image {image.width} x {image.height}: they must "
            "be alike",
            param="mask",
        )


def _picture(data: bytes, name: str) -> Picture:
    found = measure(data)
    if found is None:
        raise InvalidRequest(f"{name} is no PNG, JPEG or WebP image", param=name, code="unsupported_type")
    if found.width * found.height > MAX_INPUT_PIXELS:
        raise InvalidRequest(
            f"{name} has {found.width} x {found.height} pixels; {MAX_INPUT_PIXELS} are the most: send a smaller one",
            param=name,
            code="too_many_pixels",
        )
    return found
