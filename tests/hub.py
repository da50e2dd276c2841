"""A hub on this machine, as strict as the real one: one revision, a paged listing, large files on another address."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

REVISION = "0123456789abcdef0123456789abcdef01234567"
PAGE = 3
"""Files in one page of a listing; the real hub's has a thousand."""
LARGE_BYTES = 1000
"""A file of as many bytes is a large one: it has a SHA-256 and is fetched from the storage."""
TOKEN = "hf_hush"


class Hub:
    """One repository, `own/repo`. `asked` are the paths of files that were fetched, with the range that was wanted.

    `gated` wants the token. `breaks_after` ends the next answer of a large file after so many bytes.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.revision = REVISION
        self.gated = False
        self.breaks_after: int | None = None
        self.asked: list[tuple[str, str | None]] = []
        self.url = ""

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/models/own/repo", self._info)
        app.router.add_get("/api/models/own/repo/tree/{revision}", self._tree)
        app.router.add_get("/own/repo/resolve/{revision}/{path:.+}", self._resolve)
        app.router.add_get("/storage/{sha256}", self._storage)
        return app

    def fetched(self) -> list[str]:
        """The files that were fetched, each as often as it was."""
        return [path for path, _range in self.asked]

    def _require_key(self, request: web.Request) -> None:
        if self.gated and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise web.HTTPUnauthorized

    async def _info(self, request: web.Request) -> web.Response:
        self._require_key(request)
        siblings = [{"rfilename": path} for path in self.files]
        return web.json_response({"id": "own/repo", "sha": self.revision, "siblings": siblings, "private": False})

    async def _tree(self, request: web.Request) -> web.Response:
        self._require_key(request)
        if request.match_info["revision"] != self.revision or request.query.get("recursive") != "true":
            raise web.HTTPNotFound
        first = int(request.query.get("cursor", "0"))
        folders = sorted({path.rpartition("/")[0] for path in self.files} - {""})
        items = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": folder} for folder in folders]
        items += [self._item(path, data) for path, data in sorted(self.files.items())]
        headers = {}
        if len(items) > first + PAGE:
            following = f"{self.url}/api/models/own/repo/tree/{self.revision}?recursive=true&cursor={first + PAGE}"
            headers["Link"] = f'<{following}>; rel="next"'
        return web.json_response(items[first : first + PAGE], headers=headers)

    def _item(self, path: str, data: bytes) -> dict[str, object]:
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        item: dict[str, object] = {"type": "file", "oid": oid, "size": len(data), "path": path}
        if len(data) >= LARGE_BYTES:
            item["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return item

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        self._require_key(request)
        path = request.match_info["path"]
        if request.match_info["revision"] != self.revision or path not in self.files:
            raise web.HTTPNotFound
        data = self.files[path]
        self.asked.append((path, request.headers.get("Range")))
        if len(data) < LARGE_BYTES:
            return web.Response(body=data, headers={"ETag": f'"{self._item(path, data)["oid"]}"'})
        raise web.HTTPFound(f"{self.url}/storage/{hashlib.sha256(data).hexdigest()}")

    async def _storage(self, request: web.Request) -> web.StreamResponse:
        """Signed addresses elsewhere: S3 refuses a request that also brings a bearer."""
        sha256 = request.match_info["sha256"]
        data = next(data for data in self.files.values() if hashlib.sha256(data).hexdigest() == sha256)
        wanted = request.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        response = web.StreamResponse(status=206 if wanted else 200, headers={"ETag": f'"{sha256}"'})
        if wanted:
            response.headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        response.content_length = len(data) - start
        await response.prepare(request)
        if self.breaks_after is None:
            await response.write(data[start:])
            return response
        await response.write(data[start : start + self.breaks_after])
        self.breaks_after = None
        await asyncio.sleep(0.05)  # the bytes are read before the end is seen
        assert request.transport is not None
        request.transport.abort()
        return response


@asynccontextmanager
async def running_hub(files: dict[str, bytes]) -> AsyncIterator[Hub]:
    """A hub that serves these files."""
    hub = Hub(files)
    async with TestServer(hub.application(), host="127.0.0.1") as server:
        hub.url = str(server.make_url("/")).rstrip("/")
        yield hub
