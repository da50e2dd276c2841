"""Where an adapter's bytes come from, besides a body: a URL, and a path below one of the operator's folders."""

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from yarl import URL

from api.media.given import fetch_pieces
from infra.egress import Egress
from infra.errors import InvalidRequest
from infra.file_store import Incoming
from infra.files import CHUNK_BYTES
from workers.lora_header import LoraFacts, LoraHeader

FETCH_S: Final = 600.0
"""Seconds that fetching one adapter may take."""
_FILE: Final = "pytorch_lora_weights.safetensors"
"""What diffusers calls the adapter in a folder."""
_MOST_SEEN: Final = 1000
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""How a folder on the way is opened; where there is O_PATH it need not be readable."""
Write = Callable[[bytes], None]


class LoraFile:
    """An adapter on its way to the disk, looked at as it comes. Blocks: it belongs in a thread."""

    def __init__(self, incoming: Incoming) -> None:
        self.incoming = incoming
        self._header = LoraHeader()

    def write(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            InvalidRequest: it is no LoRA adapter.
            PayloadTooLarge, DiskFull: as `Incoming.write`.
        """
        self._header.feed(data)
        self.incoming.write(data)

    def finish(self) -> LoraFacts:
        """What it is, once it is whole.

        Raises:
            InvalidRequest: it is not whole.
        """
        return self._header.finish()


def copy_from(source: BinaryIO, target: LoraFile) -> LoraFacts:
    """The whole of a file; returns what it is.

    Raises:
        CoderAIError: as `LoraFile`'s methods.
    """
    for piece in iter(partial(source.read, CHUNK_BYTES), b""):
        target.write(piece)
    return target.finish()


async def fetch(url: str, egress: Egress, write: Write, *, param: str) -> None:
    """Pass on what is at `url`, which the request's field `param` named; `write` is called in a thread.

    Raises:
        InvalidRequest, Forbidden: as `fetch_pieces`; and whatever `write` raises.
    """
    await fetch_pieces(url, egress, lambda piece: asyncio.to_thread(write, piece), FETCH_S, param=param)


def suggested_name(url: str) -> str:
    """What an address says of its file's name."""
    return URL(url).name


class SeenFiles:
    """References of the content of files that were read before and have not changed since: reading takes a second."""

    def __init__(self) -> None:
        self._refs: dict[tuple[int, ...], str] = {}

    def find(self, status: os.stat_result) -> str | None:
        """The reference, if this very file was read."""
        return self._refs.get(_identity(status))

    def note(self, status: os.stat_result, ref: str) -> None:
        """It was read just now."""
        while len(self._refs) >= _MOST_SEEN:
            del self._refs[next(iter(self._refs))]
        self._refs[_identity(status)] = ref


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def open_below(text: str, roots: Sequence[Path]) -> tuple[BinaryIO, os.stat_result]:
    """The adapter that a request means by a path: absolute, or from one of `roots`; a folder stands for the file in it.

    Links are followed, and must not lead out. What a path outside would be is not told.

    Raises:
        InvalidRequest: no such path may be used.
    """
    if not roots:
        raise InvalidRequest(
            "this server takes no LoRA by path (loras.roots is empty): send it to POST /v1/loras/upload, or ask the "
            "operator to add its folder",
            param="loras",
        )
    if text and "\0" not in text:
        for root in map(_resolved, roots):
            found = _open(root / text, root) if root is not None else None
            if found is not None:
                return found
    raise InvalidRequest(
        f"the path {text[:200]!r} is no file below a folder of loras.roots; GET /v1/loras lists what has a name",
        param="loras",
        code="lora_not_found",
    )


def _resolved(path: Path) -> Path | None:
    """The place itself, without links; None where there is nothing."""
    try:
        return path.expanduser().resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _open(path: Path, root: Path) -> tuple[BinaryIO, os.stat_result] | None:
    place = _resolved(path)
    if place is None or not place.is_relative_to(root):
        return None
    if place.is_dir():
        return _open(place / _FILE, root) if path.name != _FILE else None
    try:
        descriptor = _descriptor(root, place.relative_to(root))
    except OSError:
        return None
    file, status = os.fdopen(descriptor, "rb"), os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return file, status
    file.close()
    return None


def _descriptor(root: Path, place: Path) -> int:
    """Open a place below `root`, one name after another and none of them a link: there was none when the path was
    resolved, and somebody may have put one into the way since.

    Raises:
        OSError: it cannot be opened so.
    """
    folder = os.open(root, _FOLDER)
    try:
        for name in place.parent.parts:
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
