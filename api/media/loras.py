"""`loras` of a request: from a name, an id, base64, a URL or a path to content that is kept with the request.

    body["loras"] = await LoraDesk(services).resolve(body.get("loras"), key, visit)

`key` is `services.auth.require(exchange.headers, "user")`, `visit` the `MediaVisit` at work. What is planned, recorded
and retried is `[{"blob": "sha256:…", "weight": 1.0, "name": "…"}, …]`; a step finds the files by `tasks.loras.located`,
and the runtime switches them on by `workers.engine.runtimes.loras.PipelineLoras(pipe).apply`.
"""

import asyncio
import math
from typing import Final, NamedTuple

from api.media.given import Given, clean_name, read_given
from api.media.lora_sources import LoraFile, copy_from, fetch, open_below, suggested_name
from api.media.visit import MediaVisit
from api.services import Services
from infra.egress import Egress
from infra.errors import InvalidRequest, NotFound, PayloadTooLarge
from infra.lora_rows import HASHED, NAMED
from infra.tokens import Key
from infra.types import Json
from workers.engine.drawing import MAX_LORAS

MOST_WEIGHT: Final = 10.0
HINT: Final = "ask the operator to raise loras.max_mb"
_SOURCES: Final = ("id", "file", "data", "url", "model", "path")
"""What an adapter may be given by; of several the first that there is counts."""
_FIELDS: Final = frozenset({*_SOURCES, "name", "weight"})


class _Asked(NamedTuple):
    sources: dict[str, str]
    weight: float
    name: str | None
    number: int


class _Found(NamedTuple):
    ref: str
    name: str | None


class LoraDesk:
    """Finds the adapters of requests."""

    def __init__(self, services: Services, egress: Egress | None = None) -> None:
        self._files = services.files
        self._settings = services.settings.loras
        self._egress = egress or Egress()

    async def resolve(self, value: Json, key: Key, visit: MediaVisit) -> list[Json]:
        """The adapters that `value`, a request's `loras`, names; none for null.

        Raises:
            InvalidRequest: it is malformed, there are too many, or one is no LoRA.
            NotFound: there is no such adapter for this key; the message has near names.
            Forbidden, PayloadTooLarge, DiskFull: one cannot be fetched or kept.
        """
        made: dict[str, Json] = {}
        for asked in _read(value):
            ref, name = await self._first(asked, key, visit)
            name = asked.name or name or ref[:19]
            if ref in made:
                raise InvalidRequest(f"the LoRA {name!r} is in loras twice: give it once", param="loras")
            made[ref] = {"blob": ref, "weight": asked.weight, "name": name}
        return list(made.values())

    async def _first(self, asked: _Asked, key: Key, visit: MediaVisit) -> _Found:
        """By the first source that has it: an id may be unknown here where the bytes come along."""
        left = list(asked.sources.items())
        while True:
            source, text = left.pop(0)
            try:
                return await self._by(source, text, asked.number, key, visit)
            except NotFound:
                if not left:
                    raise
            except (InvalidRequest, PayloadTooLarge) as error:
                error.param = "loras"
                raise

    async def _by(self, source: str, text: str, number: int, key: Key, visit: MediaVisit) -> _Found:
        if source == "id":
            return await self._registered(text, key, visit)
        if source in ("model", "path"):
            return await self._below(text, visit)
        given = await asyncio.to_thread(read_given, text, "loras", number)
        if source == "url" and given.url is None:
            raise InvalidRequest("the url of a LoRA begins with http:// or https://", param="loras")
        return await self._sent(given, visit)

    async def _registered(self, text: str, key: Key, visit: MediaVisit) -> _Found:
        rows = self._files.loras
        lora = await self._files.run(lambda: rows.find(text, key))
        await visit.link(lora.ref, rows.files.store.path(lora.ref))
        return _Found(lora.ref, lora.name)

    async def _sent(self, given: Given, visit: MediaVisit) -> _Found:
        async with visit.incoming(self._settings.max_mb << 20, len(given.data), HINT) as incoming:
            file = LoraFile(incoming)
            if given.url is None:
                await asyncio.to_thread(file.write, given.data)
            else:
                await fetch(given.url, self._egress, file.write, param="loras")
            file.finish()
            return _Found(await visit.keep(incoming), None if given.url is None else suggested_name(given.url))

    async def _below(self, text: str, visit: MediaVisit) -> _Found:
        file, status = await asyncio.to_thread(open_below, text, self._settings.roots)
        with file:
            name = clean_name(text.rstrip("/"), 1)
            known = self._files.lora_paths.find(status)
            if known is not None:
                try:
                    await visit.link(known, self._files.files.store.path(known))
                    return _Found(known, name)
                except NotFound:
                    pass  # it is not kept any more: once again
            async with visit.incoming(self._settings.max_mb << 20, status.st_size, HINT) as incoming:
                copied = LoraFile(incoming)
                await asyncio.to_thread(copy_from, file, copied)
                ref = await visit.keep(incoming)
            self._files.lora_paths.note(status, ref)
            return _Found(ref, name)


def _read(value: Json) -> list[_Asked]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequest("loras is a list of objects, each with an id, and a weight", param="loras")
    if len(value) > MAX_LORAS:
        raise InvalidRequest(f"loras has {len(value)} adapters, {MAX_LORAS} are the most", param="loras")
    return [_asked(item, number) for number, item in enumerate(value, 1)]


def _asked(item: Json, number: int) -> _Asked:
    place = f"loras[{number - 1}]"
    if isinstance(item, str):
        item = {"id": item}
    if not isinstance(item, dict) or not item.keys() <= _FIELDS:
        raise InvalidRequest(
            f"{place} is an object of one of {', '.join(_SOURCES)}, and `weight` and `name`", param="loras"
        )
    texts: dict[str, Json] = {field: item[field] for field in (*_SOURCES, "name") if item.get(field) is not None}
    wrong = next((field for field, text in texts.items() if not isinstance(text, str) or not text), None)
    if wrong is not None:
        raise InvalidRequest(f"{place}.{wrong} is a text", param="loras")
    sources: dict[str, str] = {field: str(texts[field]) for field in _SOURCES if field in texts}
    name = str(texts["name"]) if "name" in texts else None
    if not sources and name is None:
        raise InvalidRequest(
            f"{place} says no adapter: give `id`, such as {NAMED}style or {HASHED}…, as GET /v1/loras has it",
            param="loras",
        )
    shown = None if name is None else clean_name(name, number)
    return _Asked(sources or {"id": f"{NAMED}{name}"}, _weight(item.get("weight"), place), shown, number)


def _weight(value: Json, place: str) -> float:
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequest(f"{place}.weight is a number", param="loras")
    if abs(value) > MOST_WEIGHT:
        raise InvalidRequest(f"{place}.weight is from -{MOST_WEIGHT:g} to {MOST_WEIGHT:g}", param="loras")
    return float(value)
