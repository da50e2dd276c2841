"""The catalogue and the keys as the front holds them: snapshots that follow the database within a second."""

import asyncio
import logging
from collections.abc import Callable

from infra.database import Database
from infra.errors import CoderAIError
from infra.settings import Settings
from infra.tokens import TokenTable
from infra.types import ModelName
from workers.catalogue import Catalogue
from workers.entries import ReadWeights
from workers.types import ModelEntry

log = logging.getLogger("api.shelf")

REFRESH_S = 1.0


class Shelf:
    """The models on offer. `changed` is called with the name of every entry that changed or went."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        tokens: TokenTable,
        packaged: Callable[[], tuple[ModelEntry, ...]],
        read_weights: ReadWeights,
    ) -> None:
        self._settings = settings
        self._database = database
        self._tokens = tokens
        self._packaged = packaged
        self._read_weights = read_weights
        self.changed: Callable[[ModelName], None] = lambda _name: None
        tokens.refresh()
        self.catalogue = Catalogue.load(settings, database, packaged(), read_weights)

    async def keep_fresh(self) -> None:
        """Look for changes each second, for ever; a database that does not answer leaves all as it was."""
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.refresh()
            except CoderAIError as error:
                log.warning("models and keys stay as they are: %s", error.message)

    async def refresh(self) -> None:
        """Take over what changed since the last look.

        Raises:
            CoderAIError: the database does not answer; the old snapshots stay.
        """
        await asyncio.to_thread(self._tokens.refresh)
        old = self.catalogue
        new = await asyncio.to_thread(
            old.refreshed, self._settings, self._database, self._packaged(), self._read_weights
        )
        if new is old:
            return
        self.catalogue = new
        kept = {entry.name: entry for entry in new.entries}
        for entry in old.entries:
            if kept.get(entry.name) != entry:
                self.changed(entry.name)
