"""Files of a hub's repository as a folder of this machine, which appears whole or not at all."""

import asyncio
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from infra.downloads import RESERVE_BYTES, download
from infra.egress import Egress
from infra.errors import Conflict
from infra.files import make_private_folder, require_space, sync_folder, write_atomic
from infra.hub_api import Listing
from infra.types import Frozen

NOTE: Final = ".coderai.json"
"""What a folder was made of lies in it under this name."""
_CONFIGURATION: Final = ".json"
"""Files of this ending come first: they are small, and tell whether the rest is worth fetching."""

Told = Callable[[str, int, int], None]
"""Called on the loop with the file that is being fetched, the bytes that are there and the bytes of the whole."""


class FolderNote(Frozen):
    """Which content each file has."""

    repo: str
    revision: str
    files: dict[str, str]


async def fetch_folder(
    listing: Listing,
    files: Mapping[str, str],
    target: Path,
    egress: Egress,
    *,
    told: Told,
    check: Callable[[Path], None],
) -> Path:
    """Have `files` (names in the folder, with their paths in the repository) at `target`, and return it.

    They gather beside it in `<name>.partial`, which a later call goes on with: also after a cancel, and when the
    repository has changed, what of it is still the same. A `target` that was made of the same files is left alone, one
    of older files replaced. `check` looks at the folder once its configuration is there, in a thread.

    Raises:
        CoderAIError: whatever `check` raises; nothing large was fetched then.
        Conflict: something else has the target's name.
        DownloadFailed, NotFound, Forbidden, DiskFull: as `infra.downloads.download`; what has come stays for the next
            call.
    """
    note = FolderNote(
        repo=listing.repo,
        revision=listing.revision,
        files={name: listing.entries[path].identity for name, path in files.items()},
    )
    sizes = {name: listing.entries[path].size_bytes for name, path in files.items()}
    if await asyncio.to_thread(_is_same, target, note, sizes):
        return target
    part = target.with_name(f"{target.name}.partial")
    await asyncio.to_thread(_prepare, part, note, sizes)
    order = sorted(files, key=lambda name: (not name.endswith(_CONFIGURATION), sizes[name], name))
    checked = False
    done_bytes = 0
    for name in order:
        if not checked and not name.endswith(_CONFIGURATION):
            await asyncio.to_thread(check, part)
            checked = True
        if not (part / name).is_file():
            make_private_folder((part / name).parent)
            report = _reporter(told, name, done_bytes, sum(sizes.values()))
            await download(listing.source(files[name]), part / name, egress, progress=report)
        done_bytes += sizes[name]
        told(name, done_bytes, sum(sizes.values()))
    await asyncio.to_thread(_put_in_place, part, target)
    return target


def _reporter(told: Told, name: str, before_bytes: int, total_bytes: int) -> Callable[[int, int | None], None]:
    return lambda done, _of_file: told(name, before_bytes + done, total_bytes)


def _read_note(folder: Path) -> FolderNote | None:
    try:
        return FolderNote.model_validate_json((folder / NOTE).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None


def _is_same(target: Path, note: FolderNote, sizes: Mapping[str, int]) -> bool:
    """Whether the folder is there, of the same files, all of them whole.

    Raises:
        Conflict: something else has its name.
    """
    if not target.exists():
        return False
    found = _read_note(target)
    if found is None:
        raise Conflict(f"{target} is in the way: it was not made by a download. Move it, or add it by its path")
    return found.files == note.files and all(_has_size(target / name, size) for name, size in sizes.items())


def _has_size(path: Path, size_bytes: int) -> bool:
    return path.is_file() and path.stat().st_size == size_bytes


def _prepare(part: Path, note: FolderNote, sizes: Mapping[str, int]) -> None:
    """The folder to gather in, without what an older attempt has left of other files.

    Raises:
        DiskFull: the rest does not fit.
    """
    make_private_folder(part)
    old = _read_note(part)
    kept = old.files if old is not None else {}
    for file in [each for each in part.rglob("*") if each.is_file() and each.name != NOTE]:
        name = file.relative_to(part).as_posix()
        whole = name.removesuffix(".part.json").removesuffix(".part")
        same = whole in note.files and kept.get(whole) == note.files[whole]
        if not same or (name == whole and not _has_size(file, sizes[whole])):
            file.unlink()
    write_atomic(part / NOTE, note.model_dump_json().encode())
    there = sum(each.stat().st_size for each in part.rglob("*") if each.is_file())
    require_space(part, max(0, sum(sizes.values()) - there), reserve_bytes=RESERVE_BYTES)


def _put_in_place(part: Path, target: Path) -> None:
    """Give the folder its name. Who has the older one open keeps it until he lets go."""
    old = target.with_name(f"{target.name}.old")
    if old.exists():
        shutil.rmtree(old)
    if target.exists():
        target.rename(old)
    part.rename(target)
    sync_folder(target.parent)
    if old.exists():
        shutil.rmtree(old)
