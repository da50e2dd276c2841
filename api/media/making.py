"""Requests that make files of a model's pipeline: which model, whether this install can run it, and how its files reach
the client."""

from functools import partial

from api.asgi import Exchange
from api.media.made import MadeFiles, Receiver, origin_of
from api.media.visit import MediaVisit
from api.run import Delivery
from api.services import Services
from infra.errors import NotInstalled
from infra.tokens import Key
from infra.types import Json
from workers.extras import INSTALL, missing_libraries, not_installed
from workers.types import Capability, ModelEntry, ModelFormat


class MakingVisit(MediaVisit):
    """One request whose answer is files."""

    def _delivery(self, _exchange: Exchange, key: Key, body: dict[str, Json]) -> Delivery:
        files = MadeFiles(self._services.files, self._services.kept.blobs)
        return Delivery(turn=partial(files.turn_result, Receiver(key.name, origin_of(_exchange.scope))))


def maker(services: Services, name: Json, capability: Capability) -> ModelEntry:
    """The model that is named, else the first one that makes such files.

    Raises:
        ModelNotFound: there is none of that name.
        NotInstalled: there is none at all, it is served far away, or what runs it is not installed.
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
    if capability in entry.capabilities and entry.format is ModelFormat.SERVICE:
        raise NotInstalled(f"model '{entry.name}' is served far away, where {capability.value} are not asked for")
    if missing := missing_libraries(entry.format):
        raise not_installed(entry.format, f"there is no {missing[0]}")
    return entry
