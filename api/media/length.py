"""How long a recording is: asked only where it may be spread, which a short one, or one that a single engine gets, is
not."""

import asyncio
from typing import Final

from api.services import Services
from infra.errors import ModelNotFound
from infra.recordings import measure
from infra.types import Json
from tasks.transcribe import open_recording
from workers.types import Capability, ModelEntry, ModelFormat

_LEAST_BYTES: Final = 48 << 10
"""A minute at the lowest rate at which speech is understood."""
_AT_ONCE: Final = 4


class Lengths:
    """Measures recordings, a few at once; each is read in a process of its own for some tens of milliseconds."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def of(self, file: dict[str, Json], model: Json, *, job: bool) -> float | None:
        """Seconds of a request's kept file; None where nobody has to know, or it cannot be told.

        Raises:
            NotInstalled, EngineFailed: ffmpeg is not there, or could not be run.
            PayloadGone: the file is gone.
        """
        size_bytes = file["bytes"]
        if not isinstance(size_bytes, int) or size_bytes < _LEAST_BYTES or not self._may_be_spread(model, job=job):
            return None
        async with self._turns:
            with open_recording(file, self._services.kept.blobs) as content:
                return await measure(content)

    def _may_be_spread(self, model: Json, *, job: bool) -> bool:
        """Whether several engines could hear it; a job's are looked for when it begins."""
        try:
            entry = self._services.shelf.catalogue.get(model if isinstance(model, str) else "")
        except ModelNotFound:  # which is said to the client where the model is looked for
            return False
        return _hears(entry) and (job or len(self._services.sites(entry)) > 1)


def _hears(entry: ModelEntry) -> bool:
    local = entry.format is not ModelFormat.SERVICE
    return local and entry.distribute.enabled and Capability.STT in entry.capabilities
