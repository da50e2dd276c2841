"""Requests that make files of a model's pipeline: which model, whether this install can run it, and how its files reach
the client."""

import secrets
from functools import partial
from typing import Final

from api.asgi import Exchange
from api.media.made import MadeFiles, Receiver, origin_of
from api.media.visit import MediaVisit
from api.openai.schemas.far_files import refuse_loras
from api.run import Delivery
from api.services import Services
from infra.errors import NotInstalled
from infra.tokens import Key
from infra.types import Json
from workers.extras import INSTALL, missing_libraries, not_installed
from workers.types import Capability, ModelEntry, ModelFormat

_SEEDS: Final = 2**32
"""Seeds that are drawn by lot are smaller: they are easy to write down."""


class MakingVisit(MediaVisit):
    """One request whose answer is files."""

    def _delivery(self, _exchange: Exchange, key: Key, body: dict[str, Json]) -> Delivery:
        files = MadeFiles(self._services.files, self._services.kept.blobs)
        return Delivery(turn=partial(files.turn_result, Receiver(key.name, origin_of(_exchange.scope))))


def prepare(body: dict[str, Json], fields: dict[str, Json], entry: ModelEntry) -> None:
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
