"""Downloads of large files: resumed after a break, verified, and put in place in one step."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from pydantic import SecretStr

from infra.egress import Egress
from infra.errors import CoderAIError, DiskFull, Forbidden, InvalidRequest, NotFound
from infra.files import CHUNK_BYTES, require_space
from infra.partial import Part, PartNote

Progress = Callable[[int, int | None], None]
"""Called on the loop with the bytes that are there and the bytes of the whole, None while that is unknown."""

RESERVE_BYTES = 512 << 20
"""Space that a download leaves free, so that the database and the logs go on."""


class DownloadFailed(CoderAIError):
    """A file could not be fetched; the message says why, and what is kept for the next attempt."""

    code = "download_failed"


class WrongFile(DownloadFailed):
    """The server sends something else than was promised; nothing of it is kept."""


@dataclass(frozen=True, slots=True)
class Source:
    """What to fetch, and what it must be: its size in bytes and SHA-256 (hex), where they are known beforehand.

    `bearer` is sent to the URL's own origin, not to where it redirects.
    """

    url: str
    sha256: str | None = None
    size_bytes: int | None = None
    bearer: SecretStr | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often in a row a broken connection is tried again, and the waits in between.

    An attempt that brought `enough_bytes` begins a new row.
    """

    attempts: int = 6
    backoff_s: float = 1.0
    backoff_max_s: float = 30.0
    enough_bytes: int = 8 << 20

    def wait_s(self, failures: int) -> float:
        """Seconds to wait after the given number of failures in a row."""
        return float(min(self.backoff_s * 2 ** (failures - 1), self.backoff_max_s))


class _Broken(Exception):
    """The connection broke off, or the server cannot answer now: worth another attempt."""


async def download(
    source: Source,
    target: Path,
    egress: Egress,
    *,
    progress: Progress = lambda done, total: None,
    retry: Retry | None = None,
    reserve_bytes: int = RESERVE_BYTES,
) -> Path:
    """Fetch `source` to `target` and return it; `target` appears whole and verified, or not at all.

    Bytes gather in `<name>.part`; a later call goes on from there, also after a cancel, as long as the server still
    has the same file. A `target` that exists is replaced.

    Raises:
        InvalidRequest, Forbidden, NotFound: the URL cannot be used, by our rule or by the server's answer.
        DownloadFailed: the server does not answer or breaks off again and again.
        WrongFile: it is not what the source says; nothing is kept.
        Conflict: another download of the same target is running.
        DiskFull: no room; nothing of it is kept.
    """
    egress.check_url(source.url)
    if source.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", source.sha256):
        raise InvalidRequest("a SHA-256 is 64 hex digits in lower case", param="sha256")
    part = Part(target, PartNote(url=source.url, sha256=source.sha256))
    try:
        await asyncio.to_thread(part.open)
        await _until_whole(_Fetch(source, part, egress, progress, reserve_bytes), retry or Retry())
        found = await asyncio.to_thread(part.finish, source.sha256)
        if found is not None:
            raise WrongFile(  # noqa: TRY301 - what follows is for every way a file can be wrong
                f"{shown(source.url)} is not the expected file: its SHA-256 is {found}, not {source.sha256}; what was "
                "fetched is removed"
            )
    except (DiskFull, WrongFile):
        await asyncio.to_thread(part.discard)
        raise
    finally:
        await asyncio.shield(asyncio.to_thread(part.close))
    return target


async def _until_whole(fetch: "_Fetch", retry: Retry) -> None:
    failures, reached = 0, fetch.part.done_bytes
    async with fetch.egress.session() as session:
        while True:
            try:
                await fetch.attempt(session)
            except (_Broken, aiohttp.ClientError, TimeoutError, ConnectionError) as error:
                done = fetch.part.done_bytes
                failures = 1 if done - reached >= retry.enough_bytes else failures + 1
                reached = done
                if failures >= retry.attempts:
                    raise DownloadFailed(
                        f"{shown(fetch.source.url)} could not be fetched: {_words(error)}, {failures} times in a row; "
                        f"{done} bytes are kept, start it again to go on"
                    ) from error
                await asyncio.sleep(retry.wait_s(failures))
            else:
                return


class _Fetch:
    """One file on its way over HTTP: each attempt asks for what the part lacks and appends it."""

    def __init__(self, source: Source, part: Part, egress: Egress, progress: Progress, reserve_bytes: int) -> None:
        self.source = source
        self.part = part
        self.egress = egress
        self._progress = progress
        self._reserve_bytes = reserve_bytes

    async def attempt(self, session: aiohttp.ClientSession) -> None:
        """Return when the part is whole.

        Raises:
            _Broken, aiohttp.ClientError, TimeoutError: another attempt may help.
            CoderAIError: none will.
        """
        if self.source.size_bytes is not None and self.part.done_bytes == self.source.size_bytes:
            return  # a process that ended before it could verify left it whole
        headers = {"Accept-Encoding": "identity", **self._range()}
        bearer = self.source.bearer.get_secret_value() if self.source.bearer else None
        async with self.egress.fetch(session, self.source.url, headers=headers, bearer=bearer) as response:
            if response.status == 416:
                await self._past_the_end(response)
            else:
                self._require_good(response)
                await self._receive(response, await self._placed(response))

    def _range(self) -> dict[str, str]:
        etag = self.part.note.etag
        if not self.part.done_bytes or not (etag or self.source.sha256):
            return {}  # nothing to go on from, or nothing that would tell if the file has changed
        return {"Range": f"bytes={self.part.done_bytes}-", **({"If-Range": etag} if etag else {})}

    async def _past_the_end(self, response: aiohttp.ClientResponse) -> None:
        """There is nothing after what we have: then it is whole, or the file has become another one."""
        if response.headers.get("Content-Range") == f"bytes */{self.part.done_bytes}" and self.part.done_bytes:
            return
        await asyncio.to_thread(self.part.restart, None)
        raise _Broken("the server has less than it had before")

    def _require_good(self, response: aiohttp.ClientResponse) -> None:
        status, where = response.status, shown(self.source.url)
        if status in (401, 403):
            raise Forbidden(f"{where} answers {status}: it needs a token, or yours does not open it", param="url")
        if status in (404, 410):
            raise NotFound(f"{where} answers {status}: there is no such file", param="url")
        if status in (408, 425, 429) or status >= 500:
            raise _Broken(f"the server answers {status}")
        if status not in (200, 206):
            raise InvalidRequest(f"{where} answers {status}, which is no file", param="url")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise WrongFile(f"{where} is sent compressed though it was asked for as it is")

    async def _placed(self, response: aiohttp.ClientResponse) -> int | None:
        """Go to where the answer's bytes belong, and say how many bytes the whole has; None if nobody knows."""
        etag = _strong_etag(response)
        if response.status == 206:
            start, total_bytes = _content_range(response)
            if start != self.part.done_bytes or (etag and self.part.note.etag and etag != self.part.note.etag):
                await asyncio.to_thread(self.part.restart, None)
                raise _Broken("the file has changed on the server")
        else:
            total_bytes = response.content_length
            await asyncio.to_thread(self.part.restart, etag)
        expected = self.source.size_bytes
        if expected is not None and total_bytes not in (None, expected):
            raise WrongFile(f"{shown(self.source.url)} has {total_bytes} bytes, not {expected}: not the expected file")
        whole = total_bytes if total_bytes is not None else expected
        missing = max((whole or 0) - self.part.done_bytes, 0)
        folder = self.part.target.parent
        await asyncio.to_thread(require_space, folder, missing, reserve_bytes=self._reserve_bytes)
        return whole

    async def _receive(self, response: aiohttp.ClientResponse, total_bytes: int | None) -> None:
        self._progress(self.part.done_bytes, total_bytes)
        pending = bytearray()
        try:
            async for chunk in response.content.iter_any():
                pending += chunk
                if len(pending) >= CHUNK_BYTES:
                    await self._append(pending, total_bytes)
        finally:
            if pending:  # also after a break or a cancel: what has come need not come again
                await asyncio.shield(self._append(pending, total_bytes))
        if total_bytes is not None and self.part.done_bytes < total_bytes:
            raise _Broken(f"the server ended after {self.part.done_bytes} of {total_bytes} bytes")

    async def _append(self, pending: bytearray, total_bytes: int | None) -> None:
        data = bytes(pending)
        pending.clear()
        if total_bytes is not None and self.part.done_bytes + len(data) > total_bytes:
            raise WrongFile(f"{shown(self.source.url)} sends more than {total_bytes} bytes: not the expected file")
        await asyncio.to_thread(self.part.append, data)
        self._progress(self.part.done_bytes, total_bytes)


def shown(url: str) -> str:
    """A URL without its query and fragment: what a signed address may show of itself."""
    return url.partition("?")[0].partition("#")[0]


def _strong_etag(response: aiohttp.ClientResponse) -> str | None:
    """The ETag, if it promises the same bytes; a weak one does not."""
    etag = response.headers.get("ETag", "")
    return etag if re.fullmatch(r'"[\x21\x23-\x7e]{1,500}"', etag) else None


def _content_range(response: aiohttp.ClientResponse) -> tuple[int, int | None]:
    """Where the answer's bytes begin, and the size of the whole; -1 where the header cannot be read."""
    found = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", response.headers.get("Content-Range", ""))
    if found is None:
        return -1, None
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _words(error: Exception) -> str:
    return shown(str(error)) or type(error).__name__
