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
from infra.hub import HubFile, gguf_files, has_gguf, is_hub_id, split_hub_id
from infra.hub_api import HubApi, Listing
from infra.hub_folder import fetch_folder
from infra.settings import Settings
from workers.catalogue_rows import ModelRows
from workers.folders.files import require_no_code
from workers.folders.reading import read_model
from workers.snapshots import choose_folder, index_of
from workers.types import ModelEntry

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
    """Fetch the weights or the folder that `what` means and add it; a fetch that was cut off goes on where it stopped.

    Raises:
        CoderAIError: it cannot be fetched, is not what it should be, or cannot be served; the catalogue is unchanged.
    """
    path = asyncio.run(_fetch(settings, what, sha256))
    called = name or (what.partition(":")[0].rpartition("/")[2] if is_hub_id(what) else None)
    return rows.add_local(path, read_model, trusted=True, name=called, **fields)


async def _fetch(settings: Settings, what: str, sha256: str | None) -> Path:
    """The path of the model: its folder, or its weights; of these the first part, where there are several."""
    models = settings.models
    if not is_hub_id(what):
        source = Source(what, sha256)
        return await _fetch_files((HubFile(_file_name(what), source),), settings.at("models", "downloads"))
    hub = HubApi(models.hub_url, OWNER, models.hub_token)
    repo, wanted = split_hub_id(what)
    listing = await hub.list_files(repo)
    if has_gguf(listing):
        return await _fetch_files(gguf_files(what, listing), settings.at("models", *repo.split("/")))
    index = index_of(listing.entries)
    content = await hub.read_file(listing, index) if index is not None else None
    files = choose_folder(what, listing.entries, wanted, content)
    return await _fetch_folder(listing, files, settings.at("models", *what.replace(":", "--").split("/")))


async def _fetch_files(files: tuple[HubFile, ...], folder: Path) -> Path:
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


async def _fetch_folder(listing: Listing, files: dict[str, str], target: Path) -> Path:
    """One bar for all of its files, which says which one is coming."""
    with Progress(*_COLUMNS, console=Console(stderr=True)) as bars:
        bar = bars.add_task(listing.repo, total=None)

        def told(name: str, done_bytes: int, total_bytes: int) -> None:
            bars.update(bar, description=f"{listing.repo}: {name}", completed=done_bytes, total=total_bytes)

        return await fetch_folder(listing, files, target, OWNER, told=told, check=require_no_code)


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
