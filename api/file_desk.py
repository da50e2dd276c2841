"""The files of one front: rows, uploads and generated files, and the threads that their blocking work runs in."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from api.admin.sessions import KEY_FILE
from api.generated import GeneratedFiles
from api.media.lora_sources import SeenFiles
from infra.batch_rows import Batches
from infra.database import Database
from infra.file_rows import Files
from infra.file_store import FILES, FileStore
from infra.lora_rows import Loras
from infra.settings import Settings
from infra.upload_rows import Uploads

log = logging.getLogger("api.files")

PRUNE_S = 600.0
_THREADS = 4
"""A large file must not keep the threads busy that everything else shares."""
T = TypeVar("T")


class FileDesk:
    """What the routes of files share."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.files = Files(database, FileStore(settings.at(FILES)), settings.files)
        self.uploads = Uploads(self.files)
        self.batches = Batches(self.files)
        self.loras = Loras(self.files)
        self.lora_paths = SeenFiles()
        self.generated = GeneratedFiles(self.files, settings.at(*KEY_FILE))
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="files")

    async def run(self, work: Callable[[], T]) -> T:
        """Do blocking work in a thread; it is over when this is, also when it was cancelled meanwhile."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait({future})
            raise

    async def keep(self) -> None:
        """Remove what has expired, now and every ten minutes.

        Raises:
            DiskFull, DatabaseUnusable: the database cannot be written.
        """
        while True:
            gone = await self.run(lambda: self.uploads.prune() + self.files.prune())
            if gone:
                log.info("%d files and uploads have expired", gone)
            await asyncio.sleep(PRUNE_S)

    def close(self) -> None:
        """End the threads when their work is done."""
        self._threads.shutdown()
