"""Requests that make files of a model's pipeline: what they bring, which model makes them, and how its files reach the
client."""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from api.asgi import Exchange, Receive, Scope, Send, parse_object
from api.media.given import Given, clean_name, fetch, read_given
from api.media.loras import LoraDesk
from api.media.made import MadeFiles, Receiver, origin_of
from api.media.parts import parse_parts
from api.media.pictures import check_pictures
from api.media.visit import MediaVisit
from api.multipart import is_form
from api.openai.endpoint import Resource
from api.openai.schemas.far_files import refuse_loras
from api.run import Delivery
from api.services import Services
from infra.egress import Egress
from infra.errors import InvalidRequest, NotInstalled
from infra.tokens import Key
from infra.types import Json
from workers.extras import INSTALL, missing_libraries, not_installed
from workers.types import Capability, ModelEntry, ModelFormat

_SEEDS: Final = 2**32
"""Seeds that are drawn by lot are smaller: they are easy to write down."""
_PARTS: Final = 40
Body = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Making:
    """What a route makes: the fields that are pictures, how fields are checked and read off a form, and the fields
    that the route itself stands for."""

    capability: Capability
    pictures: tuple[str, ...]
    check: Callable[[Body], None]
    form_values: Callable[[Mapping[str, str]], Body]
    fixed: Mapping[str, Json] = field(default_factory=dict)


class Taken(NamedTuple):
    """What a client sent: its checked fields, and its pictures by name."""

    fields: Body
    pictures: dict[str, Given]


class MakingEndpoint:
    """Such a route as an ASGI application."""

    def __init__(self, services: Services, resource: Resource, making: Making, egress: Egress | None = None) -> None:
        self._services = services
        self._resource = resource
        self._making = making
        self._egress = egress or Egress()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await _Visit(self._services, self._resource, self._making, self._egress)(scope, receive, send)


class _Visit(MediaVisit):
    """One request, with the pictures and adapters that it has brought; its answer is files."""

    def __init__(self, services: Services, resource: Resource, making: Making, egress: Egress) -> None:
        super().__init__(services, resource)
        self._making = making
        self._egress = egress

    async def _take(self, exchange: Exchange) -> Body:
        raw = await exchange.body(self._max_body_bytes)
        fields, pictures = await asyncio.to_thread(taken, exchange.header(b"content-type"), raw, self._making)
        entry = maker(self._services, fields.get("model"), self._making.capability)
        replaced = (*self._making.pictures, "loras")
        body: Body = {name: value for name, value in fields.items() if name not in replaced and value is not None}
        body |= {"model": entry.name, **self._making.fixed}
        prepare(body, fields, entry)
        found = {name: await self._content(name, given) for name, given in pictures.items()}
        check_pictures(found)
        for name, data in found.items():
            body[name] = {"blob": await self.put(data)}
        if fields.get("loras"):
            key = self._services.auth.require(exchange.headers, "user")
            body["loras"] = await LoraDesk(self._services, self._egress).resolve(fields["loras"], key, self)
        return body

    async def _content(self, name: str, given: Given) -> bytes:
        if given.url is None:
            return given.data
        return await fetch(given.url, self._egress, self._max_body_bytes, param=name)

    def _delivery(self, exchange: Exchange, key: Key, _body: Body) -> Delivery:
        files = MadeFiles(self._services.files, self._services.kept.blobs)
        return Delivery(turn=partial(files.turn_result, Receiver(key.name, origin_of(exchange.scope))))


def taken(content_type: str | None, raw: bytes, making: Making) -> Taken:
    """The checked fields and the pictures of a request's body.

    Raises:
        InvalidRequest: something is wrong with them; `param` names it.
    """
    if not is_form(content_type):
        fields = parse_object(raw)
        making.check(fields)
        return Taken(fields, _named(fields, making.pictures))
    form = parse_parts(content_type, raw, _PARTS)
    fields = making.form_values(form.fields)
    pictures: dict[str, Given] = {}
    for file in form.files:
        name = file.field.removesuffix("[]")
        if name not in making.pictures:
            raise InvalidRequest(f"{file.field[:50]!r} is no file that is taken here", param=file.field[:50])
        if name in pictures:
            raise InvalidRequest(f"{name} is one picture: these models start from one", param=name)
        pictures[name] = Given(clean_name(file.filename, 1), file.data)
        fields[name] = "-"  # the file stands for what it would be in JSON
    making.check(fields)
    return Taken(fields, pictures | _named(fields, (name for name in making.pictures if name not in pictures)))


def _named(fields: Body, names: Iterable[str]) -> dict[str, Given]:
    """The pictures that come as texts: addresses, or their bytes in base64."""
    return {name: read_given(fields[name], name, 1) for name in names if fields.get(name)}


def prepare(body: Body, fields: Body, entry: ModelEntry) -> None:
    """Give a request for one of our own engines its seed, if the client set none; a far service draws its own.

    Raises:
        InvalidRequest: a far service would need LoRA adapters of ours.
    """
    if entry.format is ModelFormat.SERVICE:
        refuse_loras(fields)
    else:
        body.setdefault("seed", secrets.randbelow(_SEEDS))


def maker(services: Services, name: Json, capability: Capability) -> ModelEntry:
    """The model that is named, else the first one that makes such files.

    Raises:
        ModelNotFound: there is none of that name.
        NotInstalled: there is none at all, or what runs it is not installed.
    """
    catalogue = services.shelf.catalogue
    entry = next((each for each in catalogue.entries if capability in each.capabilities), None)
    if name:
        entry = catalogue.get(str(name))
    if entry is None:
        raise NotInstalled(
            f"this install has no model that makes {capability.value}: `coderai models add PATH` adds one; it needs "
            f"the extra 'torch' ({INSTALL})"
        )
    if missing := missing_libraries(entry.format):
        raise not_installed(entry.format, f"there is no {missing[0]}")
    return entry
