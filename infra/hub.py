"""Model ids of a hub, `OWNER/REPO[:QUANT]`: which files they mean, and what those must be."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeGuard

from infra.downloads import Source
from infra.errors import InvalidRequest
from infra.hub_api import Listing
from infra.types import HubId

DEFAULT_QUANT = "Q4_K_M"
_ID = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(:(?P<quant>[A-Za-z0-9][\w.-]{0,63}))?", re.ASCII
)
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.gguf", re.IGNORECASE)
_SPLIT = re.compile(r"(?P<base>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file to download: the name to give it, which is safe as a file name, and where it comes from."""

    name: str
    source: Source


def is_hub_id(text: str) -> TypeGuard[HubId]:
    """Whether `text` reads as `OWNER/REPO[:QUANT]`."""
    return _ID.fullmatch(text) is not None


def split_hub_id(hub_id: HubId) -> tuple[str, str | None]:
    """`OWNER/REPO`, and what stands after the colon.

    Raises:
        InvalidRequest: no such id.
    """
    found = _ID.fullmatch(hub_id)
    if found is None:
        raise InvalidRequest("a hub's model is named OWNER/REPO or OWNER/REPO:QUANT", param="model")
    return found["repo"], found["quant"]


def gguf_files(hub_id: HubId, listing: Listing) -> tuple[HubFile, ...]:
    """The GGUF files that `OWNER/REPO[:QUANT]` means, the parts of a split one in order.

    Without QUANT it is Q4_K_M, or the only one that there is.

    Raises:
        InvalidRequest: no GGUF in the repository, or several to choose from; the message lists them.
    """
    chosen = choose_gguf(hub_id, listing.entries, split_hub_id(hub_id)[1])
    return tuple(HubFile(PurePosixPath(path).name, listing.source(path)) for path in chosen)


def has_gguf(listing: Listing) -> bool:
    """Whether the repository holds a language model as GGUF."""
    return bool(_models(listing.entries))


def choose_gguf(hub_id: HubId, paths: Iterable[str], quant: str | None) -> tuple[str, ...]:
    """The paths of one model among a repository's files: one, or all parts of a split one in order.

    Raises:
        InvalidRequest: none, several, or a split one with a part missing; the message lists what there is.
    """
    groups = _models(paths)
    if not groups:
        raise InvalidRequest(f"{hub_id} has no GGUF file: choose a repository that has, often one called …-GGUF")
    matching = [base for base in groups if _has_quant(base, quant or DEFAULT_QUANT)]
    if not matching and quant is None and len(groups) == 1:
        matching = list(groups)
    if len(matching) != 1:
        there = ", ".join(sorted(groups))
        say = "several models match" if matching else f"no model of {quant or DEFAULT_QUANT} is there"
        raise InvalidRequest(f"{hub_id}: {say}; name one as OWNER/REPO:QUANT. There is: {there}", param="model")
    base = matching[0]
    count, parts = groups[base]
    if set(parts) != set(range(1, count + 1)):
        raise InvalidRequest(f"{hub_id}: {base} has {len(parts)} of its {count} parts, so it cannot be used")
    return tuple(parts[number] for number in sorted(parts))


def _models(paths: Iterable[str]) -> dict[str, tuple[int, dict[int, str]]]:
    """The language models among the paths: base name → how many parts it should have, and those that there are."""
    groups: dict[str, tuple[int, dict[int, str]]] = {}
    for path in paths:
        name = PurePosixPath(path).name
        if not _FILE.fullmatch(name) or name.lower().startswith("mmproj") or ".." in path:
            continue
        split = _SPLIT.fullmatch(path)
        base, part, count = (split["base"], int(split["part"]), int(split["count"])) if split else (path[:-5], 1, 1)
        groups.setdefault(base, (count, {}))[1][part] = path
    return groups


def _has_quant(base: str, quant: str) -> bool:
    """Whether a quantisation stands in a file's name (or its folder's) as a word of its own: Q4_K is not Q4_K_M."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(quant)}(?![A-Za-z0-9_])", base, re.IGNORECASE) is not None
