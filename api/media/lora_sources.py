"""Where an adapter's bytes come from, besides a body: a URL, and a path below one of the operator's folders."""

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import aiohttp
from yarl import URL

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


async def fetch(url: str, egress: Egress, write: Write) -> None:
    """Pass on what is at `url`; `write` is called in a thread.

    Raises:
        InvalidRequest, Forbidden: it is no address of the public internet, or nothing comes from there; and whatever
            `write` raises.
    """
    host = egress.check_url(url).host
    try:
        async with (
            asyncio.timeout(FETCH_S),
            egress.session() as session,
            egress.fetch(session, url, headers={"Accept-Encoding": "identity"}) as answer,
        ):
            if answer.status != 200:
                raise InvalidRequest(f"{host} answers {answer.status} for the adapter's URL", param="url")
            async for piece in answer.content.iter_chunked(CHUNK_BYTES):
                await asyncio.to_thread(write, piece)
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        raise InvalidRequest(f"nothing could be fetched from {host}: {type(error).__name__}", param="url") from error


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
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    file, status = os.fdopen(descriptor, "rb"), os.fstat(descriptor)
    # Somebody may have put a link into the way since: what was opened counts.
    if stat.S_ISREG(status.st_mode) and Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(root):
        return file, status
    file.close()
    return None
