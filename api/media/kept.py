"""Files that come with requests: they lie with the run's request, for as long as that is kept, and go with it.

A request that nobody records has its file only while it is answered.
"""

import asyncio
import errno
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from api.jobs import STORE
from infra.blobs import Blobs
from infra.errors import NotFound
from infra.file_store import FileStore, Incoming
from infra.files import CHUNK_BYTES, full_disk_named, make_private_folder
from infra.settings import Settings

PASSING: Final = "passing"
"""The folder of what is kept for no longer than a request lasts, below the install's."""

_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})
"""A file cannot have a second name there."""
_PRUNE_S: Final = 600.0
_PASSING_S: Final = 24 * 3600.0
"""Longer than any request lasts: what steps have made for it lies here, too."""


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
        payloads = Blobs(settings.at("payloads"))
        self.outputs: Blobs = payloads if self._keeps else passing
        """Where the steps of requests put what they make; it goes with age."""
        self.blobs: tuple[Blobs, ...] = (payloads, Blobs(settings.at(STORE)), passing)

    def begin(self, max_bytes: int, announced_bytes: int, hint: str = "", *, job: bool) -> Incoming:
        """A file that is coming; `hint` is what its sender may do if it is over `max_bytes`.

        Raises:
            DiskFull: there is no room for it.
        """
        return self._store(job=job).begin(max_bytes, announced_bytes, hint)

    def keep(self, incoming: Incoming, *, job: bool) -> str:
        """Give what has come its name, and a new age; returns its reference. `leave` ends its use.

        Raises:
            DiskFull: there is no room after all.
        """
        ref = incoming.seal().ref
        self._use(ref, incoming.place, job=job)
        return ref

    def link(self, ref: str, source: Path, *, job: bool) -> None:
        """The same for content that lies in another folder of this install: a second name of that file, if it can be.

        Raises:
            NotFound: it lies neither here nor there.
            DiskFull: there is no room for the name.
        """
        store = self._store(job=job)
        try:
            self._use(ref, lambda: _give_name(store, store.path(ref), source), job=job)
        except FileNotFoundError as error:
            raise NotFound(f"the content {ref} is not kept any more", code="file_gone") from error

    def _use(self, ref: str, make: Callable[[], None], *, job: bool) -> None:
        path = self._store(job=job).path(ref)
        with self._lock:
            self._in_use[ref, job] += 1
            if not path.exists():
                self._ours.add((ref, job))
        try:
            make()
            os.utime(path)
        except BaseException:
            self.leave(ref, job=job, keep=False)
            raise

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

    async def keep_pruning(self) -> None:
        """Remove what nobody has fetched from the passing files, now and again."""
        while True:
            await asyncio.sleep(_PRUNE_S)
            await asyncio.to_thread(self.blobs[-1].prune, _PASSING_S)

    def _store(self, *, job: bool) -> FileStore:
        return self._jobs if job else self._interactive


def _give_name(store: FileStore, target: Path, source: Path) -> None:
    """Make `target`, if it is missing, the same file as `source`; a copy, where the file systems want it so."""
    if target.exists():
        return
    make_private_folder(target.parent)
    try:
        with full_disk_named(target), suppress(FileExistsError):
            os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        with source.open("rb") as file:
            incoming = store.begin(os.fstat(file.fileno()).st_size)
            try:
                for piece in iter(partial(file.read, CHUNK_BYTES), b""):
                    incoming.write(piece)
                incoming.seal()
                incoming.place()
            finally:
                incoming.discard()
