"""Files that come with requests: they lie with the run's request, for as long as that is kept, and go with it.

A request that nobody records has its file only while it is answered.
"""

import os
import threading
from collections import Counter
from typing import Final

from api.jobs import STORE
from infra.blobs import Blobs
from infra.file_store import FileStore, Incoming
from infra.settings import Settings

PASSING: Final = "passing"
"""The folder of what is kept for no longer than a request lasts, below the install's."""


class KeptFiles:
    """Where such files go. Everything but `blobs` blocks, so it belongs in a thread."""

    def __init__(self, settings: Settings, *, recorded: bool) -> None:
        """`recorded`: requests of this front are kept. What an earlier front has left behind is removed."""
        self._keeps = recorded and settings.payloads != "none"
        self._interactive = FileStore(settings.at("payloads" if self._keeps else PASSING))
        self._jobs = FileStore(settings.at(STORE))
        self._lock = threading.Lock()
        self._in_use: Counter[tuple[str, bool]] = Counter()
        self._ours: set[tuple[str, bool]] = set()
        """What lies here for requests alone that are being answered now."""
        passing = Blobs(settings.at(PASSING))
        passing.prune(0.0)
        for store in (self._interactive, self._jobs):
            store.clear_incoming()
        self.blobs: tuple[Blobs, ...] = (Blobs(settings.at("payloads")), Blobs(settings.at(STORE)), passing)

    def begin(self, max_bytes: int, announced_bytes: int, *, job: bool) -> Incoming:
        """A file that is coming.

        Raises:
            DiskFull: there is no room for it.
        """
        return self._store(job=job).begin(max_bytes, announced_bytes)

    def keep(self, incoming: Incoming, *, job: bool) -> str:
        """Give what has come its name, and a new age; returns its reference. `leave` ends its use.

        Raises:
            DiskFull: there is no room after all.
        """
        store, ref = self._store(job=job), incoming.seal().ref
        path = store.path(ref)
        with self._lock:
            self._in_use[ref, job] += 1
            if not path.exists():
                self._ours.add((ref, job))
        try:
            incoming.place()
            os.utime(path)
        except OSError:
            self.leave(ref, job=job, keep=False)
            raise
        return ref

    def leave(self, ref: str, *, job: bool, keep: bool) -> None:
        """The request is over: remove what is not kept with it, unless another one uses it, or an earlier one did.

        `keep`: the request became a run. One that was refused has nothing that its file could lie with.
        """
        with self._lock:
            if keep and (job or self._keeps):
                self._ours.discard((ref, job))
            self._in_use[ref, job] -= 1
            if self._in_use[ref, job] > 0:
                return
            del self._in_use[ref, job]
            if (ref, job) in self._ours:
                self._ours.remove((ref, job))
                self._store(job=job).remove(ref)

    def _store(self, *, job: bool) -> FileStore:
        return self._jobs if job else self._interactive
