"""Model ids of a hub, `OWNER/REPO[:QUANT]`: which files they mean, and what those must be."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeGuard, TypeVar
from urllib.parse import quote

import aiohttp
from pydantic import Field, SecretStr, TypeAdapter, ValidationError

from infra.downloads import DownloadFailed, Source, shown
from infra.egress import Egress
from infra.errors import Forbidden, InvalidRequest, NotFound
from infra.types import FarShape, HubId

DEFAULT_QUANT = "Q4_K_M"
_ID = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(:(?P<quant>[A-Za-z0-9][\w.-]{0,63}))?", re.ASCII
)
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.gguf", re.IGNORECASE)
_SPLIT = re.compile(r"(?P<base>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_MOST_JSON_BYTES = 16 << 20
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file to download: the name to give it, which is safe as a file name, and where it comes from."""

    name: str
    source: Source


class _Sibling(FarShape):
    rfilename: str


class _Repo(FarShape):
    sha: str | None = None
    siblings: tuple[_Sibling, ...] = ()


class _Lfs(FarShape):
    oid: str
    size_bytes: int = Field(alias="size")


class _TreeItem(FarShape):
    path: str
    size_bytes: int = Field(default=0, alias="size")
    lfs: _Lfs | None = None


_TREE = TypeAdapter(tuple[_TreeItem, ...])
_REPO = TypeAdapter(_Repo)


def is_hub_id(text: str) -> TypeGuard[HubId]:
    """Whether `text` reads as `OWNER/REPO[:QUANT]`."""
    return _ID.fullmatch(text) is not None


async def resolve_hub_id(
    hub_id: HubId, hub_url: str, egress: Egress, token: SecretStr | None = None
) -> tuple[HubFile, ...]:
    """The GGUF files that `OWNER/REPO[:QUANT]` means, the parts of a split one in order.

    Without QUANT it is Q4_K_M, or the only one that there is.

    Raises:
        InvalidRequest: no such id, no GGUF in the repository, or several to choose from; the message lists them.
        NotFound, Forbidden: the hub does not know the repository, or wants a token.
        DownloadFailed: the hub does not answer, or not as a hub does.
    """
    found = _ID.fullmatch(hub_id)
    if found is None:
        raise InvalidRequest("a hub's model is named OWNER/REPO or OWNER/REPO:QUANT", param="model")
    repo, wanted = found["repo"], found["quant"]
    base = hub_url.rstrip("/")
    hub = _Hub(egress, token)
    info = await hub.get(f"{base}/api/models/{repo}", _REPO)
    chosen = choose_gguf(hub_id, (sibling.rfilename for sibling in info.siblings), wanted)
    tree = {item.path: item for item in await hub.get(f"{base}/api/models/{repo}/tree/main?recursive=true", _TREE)}
    return tuple(_hub_file(base, repo, path, tree, token) for path in chosen)


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


def _hub_file(base: str, repo: str, path: str, tree: Mapping[str, _TreeItem], token: SecretStr | None) -> HubFile:
    item = tree.get(path)
    if item is None:
        raise DownloadFailed(f"{base} lists {path} in {repo} but does not say what it must be: try again later")
    url = f"{base}/{repo}/resolve/main/{quote(path)}"
    sha256 = item.lfs.oid.removeprefix("sha256:") if item.lfs else None
    return HubFile(
        PurePosixPath(path).name, Source(url, sha256, item.lfs.size_bytes if item.lfs else item.size_bytes, token)
    )


@dataclass(frozen=True, slots=True)
class _Hub:
    egress: Egress
    token: SecretStr | None

    async def get(self, url: str, shape: TypeAdapter[_T]) -> _T:
        """One JSON answer of the hub's API."""
        bearer = self.token.get_secret_value() if self.token else None
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            async with (
                self.egress.session() as session,
                self.egress.fetch(session, url, headers=headers, bearer=bearer) as response,
            ):
                _require_found(response, url)
                return shape.validate_json(await _bounded(response, url))
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise DownloadFailed(f"{shown(url)} does not answer ({type(error).__name__}): try again later") from error
        except ValidationError as error:
            raise DownloadFailed(f"{shown(url)} answers something that is no hub's: look at models.hub_url") from error


def _require_found(response: aiohttp.ClientResponse, url: str) -> None:
    if response.status in (401, 403):
        raise Forbidden(f"{shown(url)} is private, gated or not there: set models.hub_token", param="model")
    if response.status == 404:
        raise NotFound(f"{shown(url)} is not there: look at the spelling of OWNER/REPO", param="model")
    if response.status != 200:
        raise DownloadFailed(f"{shown(url)} answers {response.status}: try again later")


async def _bounded(response: aiohttp.ClientResponse, url: str) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > _MOST_JSON_BYTES:
            raise DownloadFailed(f"{shown(url)} answers more than {_MOST_JSON_BYTES} bytes: look at models.hub_url")
    return bytes(content)
