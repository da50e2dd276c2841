"""The catalogue and the keys as the front holds them: snapshots that follow the database within a second."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from infra.database import Database
from infra.errors import CoderAIError
from infra.settings import Settings, config_path, load_settings
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
        self._file_seen = _stamp(config_path())
        self._refreshing = asyncio.Lock()
        self._database = database
        self._tokens = tokens
        self._packaged = packaged
        self._read_weights = read_weights
        self.changed: Callable[[ModelName], None] = lambda _name: None
        tokens.refresh()
        self.catalogue = Catalogue.load(settings, database, packaged(), read_weights)
        self._say_problems(())

    def current(self, entry: ModelEntry) -> ModelEntry:
        """The entry as it is now, for a request that has waited with it.

        Raises:
            ModelNotFound: the model has gone.
        """
        return self.catalogue.get(entry.name)

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
            CoderAIError: the database does not answer, or the file's models cannot be used; the old snapshots stay.
        """
        async with self._refreshing:  # one after the other: an older snapshot must not come after a newer one
            await asyncio.to_thread(self._tokens.refresh)
            old = self.catalogue
            new = await asyncio.to_thread(self._reread)
            self.catalogue = new
        if new is old:
            return
        self._say_problems(old.problems)
        kept = {entry.name: entry for entry in new.entries}
        for entry in old.entries:
            if kept.get(entry.name) != entry:
                self.changed(entry.name)

    def _say_problems(self, said: tuple[str, ...]) -> None:
        for problem in self.catalogue.problems:
            if problem not in said:
                log.warning("%s", problem)

    def _reread(self) -> Catalogue:
        """The catalogue as it is now; of the settings file only the models are looked at again."""
        settings, seen = self._settings, _stamp(config_path())
        if seen != self._file_seen:
            self._file_seen = seen  # a file that cannot be used is said once, not every second
            settings = settings.model_copy(update={"model": load_settings(home=settings.home).model})
            log.info("%s has changed: its models are read again", config_path())
        catalogue = self.catalogue.refreshed(settings, self._database, self._packaged(), self._read_weights)
        self._settings = settings
        return catalogue


def _stamp(path: Path) -> tuple[int, int] | None:
    """What tells one state of a file from another; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
