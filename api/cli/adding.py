"""Adding a model that must be fetched first: from a hub or a URL, with progress, into the install's own folder."""

import asyncio
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from infra.downloads import Source, download
from infra.egress import Egress
from infra.errors import InvalidRequest
from infra.files import make_private_folder
from infra.hub import HubFile, is_hub_id, resolve_hub_id
from infra.settings import Settings
from workers.catalogue_rows import ModelRows
from workers.types import ModelEntry
from workers.weights import read_weights

OWNER = Egress(allow_private=True)
"""The machine's owner may fetch from anywhere, the own network included."""
_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    DownloadColumn(),
    TransferSpeedColumn(),
)


def is_remote(what: str) -> bool:
    """Whether `what` is to be fetched: a URL, or a hub id that is no file here."""
    return what.startswith(("http://", "https://")) or (is_hub_id(what) and not Path(what).exists())


def add_downloaded(  # what the command line was given
    settings: Settings, rows: ModelRows, what: str, name: str | None, sha256: str | None, fields: dict[str, Any]
) -> ModelEntry:
    """Fetch the weights that `what` means and add them; a fetch that was cut off goes on where it stopped.

    Raises:
        CoderAIError: it cannot be fetched, is not what it should be, or cannot be served; the catalogue is unchanged.
    """
    path = asyncio.run(_fetch(settings, what, sha256))
    called = name or (what.partition(":")[0].rpartition("/")[2] if is_hub_id(what) else None)
    return rows.add_local(path, read_weights, trusted=True, name=called, **fields)


async def _fetch(settings: Settings, what: str, sha256: str | None) -> Path:
    """The path of the weights; of their first part, where there are several."""
    models = settings.models
    files: tuple[HubFile, ...]
    if is_hub_id(what):
        files = await resolve_hub_id(what, models.hub_url, OWNER, models.hub_token)
        folder = settings.at("models", *what.partition(":")[0].split("/"))
    else:
        files = (HubFile(_file_name(what), Source(what, sha256)),)
        folder = settings.at("models", "downloads")
    make_private_folder(folder)
    with Progress(*_COLUMNS, console=Console(stderr=True)) as bars:
        for file in files:
            bar = bars.add_task(file.name, total=file.source.size_bytes)
            if not _is_there(folder / file.name, file.source):
                await download(
                    file.source,
                    folder / file.name,
                    OWNER,
                    progress=lambda done, total, bar=bar: bars.update(bar, completed=done, total=total),  # type: ignore[misc]
                )
    return folder / files[0].name


def _is_there(path: Path, source: Source) -> bool:
    """An earlier, verified download of the same file; one whose size is not known beforehand is fetched anew."""
    return source.size_bytes is not None and path.is_file() and path.stat().st_size == source.size_bytes


def _file_name(url: str) -> str:
    """The last part of a URL's path, as a file's name.

    Raises:
        InvalidRequest: it has none that is safe.
    """
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    if not name or name.startswith(".") or any(character in name for character in '/\\:*?"<>|\0'):
        raise InvalidRequest("this URL does not end in a file's name: download it yourself and add its path")
    return name
