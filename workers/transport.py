"""The one HTTP client towards engines: pooled connections, no cookies, no redirects, bytes as they come."""

import asyncio

import aiohttp
import orjson
from yarl import URL

from infra.errors import EngineFailed
from infra.types import Json
from workers.live import Engine

KEEP_ALIVE_S = 4.0
"""Shorter than the five seconds after which llama.cpp's server, and uvicorn, close an idle connection."""
CONNECT_S = 5.0
"""Seconds a connection may take; an answer may take as long as it needs."""
_URLS_KEPT = 1000


class Transport:
    """Requests to engines. Made on a running loop, closed with `close`."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
            trust_env=False,
        )
        self._urls: dict[str, URL] = {}

    async def post(self, engine: Engine, path: str, body: bytes) -> aiohttp.ClientResponse:
        """Send JSON to `path` below the engine's `/v1`; the answer's head is there on return, its body is not read.

        Raises:
            EngineFailed: no connection, or it broke before the answer's head.
        """
        address = engine.base_url + path
        url = self._urls.get(address)
        if url is None:
            if len(self._urls) >= _URLS_KEPT:  # each start of an engine has a port of its own
                self._urls.clear()
            url = self._urls[address] = URL(address)
        try:
            try:
                return await self._session.post(url, data=body, headers=engine.headers, allow_redirects=False)
            except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                # A kept-alive connection may be closed by the far end in the moment in which it is used again.
                return await self._session.post(url, data=body, headers=engine.headers, allow_redirects=False)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise EngineFailed(f"{engine.id} did not answer: {error or type(error).__name__}") from error

    async def alive(self, url: str, headers: dict[str, str], timeout_s: float) -> int:
        """Status of a GET, 0 when nothing answers in time."""
        limit = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.get(url, headers=headers, timeout=limit, allow_redirects=False) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0

    async def get_object(self, url: str, headers: dict[str, str], timeout_s: float = 5.0) -> dict[str, Json]:
        """The JSON object that a GET answers; empty when there is none to be had."""
        limit = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.get(url, headers=headers, timeout=limit, allow_redirects=False) as answer:
                found = orjson.loads(await answer.read()) if answer.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()
        await asyncio.sleep(0)
