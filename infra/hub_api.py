"""A hub's answers: what is in a repository, as one revision of it has it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote, urljoin

import aiohttp
from pydantic import Field, SecretStr, TypeAdapter, ValidationError

from infra.downloads import DownloadFailed, Source, shown
from infra.egress import Egress
from infra.errors import Forbidden, InvalidRequest, NotFound
from infra.types import FarShape

MOST_JSON_BYTES: Final = 16 << 20
MOST_PAGES: Final = 100
"""Of a listing, a thousand files each."""
_NEXT: Final = re.compile(r'<([^<>]{1,2000})>; *rel="next"')
_REVISION: Final = re.compile(r"[0-9a-f]{40}")
_T = TypeVar("_T")


class _Repo(FarShape):
    sha: str | None = None


class _Lfs(FarShape):
    oid: str
    size_bytes: int = Field(alias="size")


class _TreeItem(FarShape):
    path: str
    kind: str = Field(default="file", alias="type")
    oid: str = ""
    size_bytes: int = Field(default=0, alias="size")
    lfs: _Lfs | None = None


_TREE = TypeAdapter(tuple[_TreeItem, ...])
_REPO = TypeAdapter(_Repo)


@dataclass(frozen=True, slots=True)
class HubEntry:
    """One file of a repository. `identity` changes with its content; `sha256` is known of large files only."""

    size_bytes: int
    sha256: str | None
    identity: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at one revision."""

    repo: str
    revision: str
    base_url: str
    entries: Mapping[str, HubEntry]
    token: SecretStr | None = None

    def source(self, path: str) -> Source:
        """What one of its files is fetched from, and what it must be."""
        entry = self.entries[path]
        url = f"{self.base_url}/{self.repo}/resolve/{self.revision}/{quote(path)}"
        return Source(url, entry.sha256, entry.size_bytes, self.token)


class HubApi:
    """Asks one hub."""

    def __init__(self, hub_url: str, egress: Egress, token: SecretStr | None = None) -> None:
        self._base = hub_url.rstrip("/")
        self._egress = egress
        self._token = token

    async def list_files(self, repo: str) -> Listing:
        """Every file of the repository's newest revision.

        Raises:
            NotFound, Forbidden: the hub does not know the repository, or wants a token.
            DownloadFailed: the hub does not answer, or not as a hub does.
        """
        url = f"{self._base}/api/models/{repo}"
        info = _parsed(_REPO, (await self._get(url))[0], url)
        revision = info.sha if info.sha is not None and _REVISION.fullmatch(info.sha) else "main"
        entries: dict[str, HubEntry] = {}
        page: str | None = f"{url}/tree/{revision}?recursive=true"
        for _ in range(MOST_PAGES):
            if page is None:
                break
            content, following = await self._get(page)
            entries |= {item.path: _entry(item) for item in _parsed(_TREE, content, page) if item.kind == "file"}
            page = following
        return Listing(repo, revision, self._base, entries, self._token)

    async def read_file(self, listing: Listing, path: str) -> bytes:
        """The bytes of a small file.

        Raises:
            DownloadFailed, NotFound, Forbidden: as `list_files`, or it is too large.
        """
        return (await self._get(listing.source(path).url))[0]

    async def _get(self, url: str) -> tuple[bytes, str | None]:
        """An answer's body, and the address of the page after it."""
        bearer = self._token.get_secret_value() if self._token else None
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            async with (
                self._egress.session() as session,
                self._egress.fetch(session, url, headers=headers, bearer=bearer) as response,
            ):
                _require_found(response, url)
                following = _NEXT.search(response.headers.get("Link", ""))
                return await _bounded(response, url), self._page(following[1]) if following else None
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise DownloadFailed(f"{shown(url)} does not answer ({type(error).__name__}): try again later") from error

    def _page(self, link: str) -> str:
        """The next page's address: on this hub, for the token goes there.

        Raises:
            InvalidRequest: it is elsewhere.
        """
        page = urljoin(f"{self._base}/", link)
        if not page.startswith(f"{self._base}/"):
            raise InvalidRequest(
                f"{self._base} sends its listing's next page to another server: look at models.hub_url"
            )
        return page


def _entry(item: _TreeItem) -> HubEntry:
    if item.lfs is None:
        return HubEntry(item.size_bytes, None, item.oid)
    sha256 = item.lfs.oid.removeprefix("sha256:")
    return HubEntry(item.lfs.size_bytes, sha256, sha256)


def _parsed(shape: TypeAdapter[_T], content: bytes, url: str) -> _T:
    try:
        return shape.validate_json(content)
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
        if len(content) > MOST_JSON_BYTES:
            raise DownloadFailed(f"{shown(url)} answers more than {MOST_JSON_BYTES} bytes: look at models.hub_url")
    return bytes(content)
