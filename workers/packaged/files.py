"""Files that exist whole or not at all, and the seal beside each that says its hash was checked."""

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from infra.files import full_disk_named, make_private_folder, require_space, sync_folder, write_atomic
from infra.types import Frozen, ModelName

CHUNK_BYTES = 4 << 20
SPARE_BYTES = 64 << 20
"""Disk space left over after a model was written: the database and the spool live on the same disk."""

Stage = Literal["join", "convert", "verify"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the preparation of one packaged model is, in bytes of this stage."""

    model: ModelName
    stage: Stage
    done_bytes: int
    total_bytes: int


Report = Callable[[Progress], None]
Step = Callable[[int], None]
"""Called with the bytes done so far in this stage."""


class Stopped(Exception):
    """The caller no longer wants the result; nothing was left behind."""


class Pin(Frozen):
    """What a file must be, byte for byte."""

    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Seal(Frozen):
    """The hash of a file as it was checked; size and time of change tell whether it is still that file."""

    size_bytes: int
    mtime_ns: int
    sha256: str
    made_from: str
    """The pinned source, and the version of what made the file out of it."""


def sealed(path: Path, seal_path: Path) -> Seal | None:
    """The seal of `path`, or None where file or seal is missing, unreadable, or of another file."""
    try:
        found = path.stat()
        seal = Seal.model_validate_json(seal_path.read_bytes())
    except (OSError, ValidationError):
        return None
    fits = seal.size_bytes == found.st_size and seal.mtime_ns == found.st_mtime_ns
    return seal if fits else None


def write_seal(path: Path, seal_path: Path, sha256: str, made_from: str) -> None:
    """Note beside a file that its hash was checked."""
    found = path.stat()
    seal = Seal(size_bytes=found.st_size, mtime_ns=found.st_mtime_ns, sha256=sha256, made_from=made_from)
    write_atomic(seal_path, seal.model_dump_json().encode())


def sha256_of(path: Path, step: Step, stop: threading.Event) -> str:
    """Hash a file.

    Raises:
        Stopped: `stop` was set meanwhile.
    """
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            step(done)
            if stop.is_set():
                raise Stopped
    return digest.hexdigest()


@contextmanager
def whole_file(target: Path, size_bytes: int) -> Iterator[Path]:
    """Give a temporary file for `size_bytes`; it becomes `target` when the block ends, and vanishes when it fails.

    Raises:
        DiskFull: there is no room, seen beforehand or while writing.
    """
    folder = make_private_folder(target.parent)
    require_space(folder, size_bytes, reserve_bytes=SPARE_BYTES)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=folder)
    temporary = Path(name)
    try:
        with full_disk_named(target):
            yield temporary
            os.fsync(handle)
            temporary.replace(target)
        sync_folder(folder)
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)
