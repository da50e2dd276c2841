"""`POST /v1/video/generations`: from what a client sends, as JSON or as a form, to the request to be planned."""

import asyncio
from typing import Final

from api.asgi import Exchange, Receive, Scope, Send, parse_object
from api.media.given import Given, clean_name, fetch, read_given
from api.media.images import measured
from api.media.loras import LoraDesk
from api.media.making import MakingVisit, maker, prepare
from api.media.parts import parse_parts
from api.multipart import is_form
from api.openai.endpoint import Resource
from api.openai.schemas.video import check_fields, form_values
from api.services import Services
from infra.egress import Egress
from infra.errors import InvalidRequest
from infra.types import Json
from workers.types import Capability

PATH: Final = "/v1/video/generations"
_PARTS: Final = 40
_TAKEN_APART: Final = ("image", "loras")


class VideoEndpoint:
    """The route as an ASGI application."""

    def __init__(self, services: Services, resource: Resource, *, egress: Egress | None = None) -> None:
        self._services = services
        self._resource = resource
        self._egress = egress or Egress()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await _Visit(self._services, self._resource, self._egress)(scope, receive, send)


class _Visit(MakingVisit):
    """One request, with the image and the adapters that it has brought."""

    def __init__(self, services: Services, resource: Resource, egress: Egress) -> None:
        super().__init__(services, resource)
        self._egress = egress

    async def _take(self, exchange: Exchange) -> dict[str, Json]:
        raw = await exchange.body(self._max_body_bytes)
        fields, image = await asyncio.to_thread(taken, exchange.header(b"content-type"), raw)
        entry = maker(self._services, fields.get("model"), Capability.VIDEO)
        body: dict[str, Json] = {
            name: value for name, value in fields.items() if name not in _TAKEN_APART and value is not None
        }
        body["model"] = entry.name
        prepare(body, fields, entry)
        if image is not None:
            data = image.data
            if image.url is not None:
                data = await fetch(image.url, self._egress, self._max_body_bytes)
            measured({"image": data})
            body["image"] = {"blob": await self.put(data)}
        if fields.get("loras"):
            key = self._services.auth.require(exchange.headers, "user")
            body["loras"] = await LoraDesk(self._services, self._egress).resolve(fields["loras"], key, self)
        return body


def taken(content_type: str | None, raw: bytes) -> tuple[dict[str, Json], Given | None]:
    """The checked fields of a request's body, and the image to start from.

    Raises:
        InvalidRequest: something is wrong with them; `param` names it.
    """
    if not is_form(content_type):
        fields = parse_object(raw)
        check_fields(fields)
        return fields, read_given(fields["image"], "image", 1) if fields.get("image") else None
    form = parse_parts(content_type, raw, _PARTS)
    fields, image = form_values(form.fields), None
    for file in form.files:
        if file.field != "image" or image is not None:
            raise InvalidRequest(
                f"{file.field[:50]!r} is no file that is taken here: send one image, as 'image'", param=file.field[:50]
            )
        image = Given(clean_name(file.filename, 1), file.data)
        fields["image"] = "-"  # the file stands for what it would be in JSON
    check_fields(fields)
    if image is None and fields.get("image"):
        image = read_given(fields["image"], "image", 1)
    return fields, image
