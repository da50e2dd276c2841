"""A proxy between the client under test and the server that counts what the server answered.

`python -m tests.conformance.counter PORT SERVER_URL KEY_FILE ADMIN_KEY_FILE` forwards everything, with the key of
KEY_FILE in place of the one that the suite has written into it, or that of ADMIN_KEY_FILE where only an admin may do
it. `GET /_reached` gives what was answered since the last time, as a list of
lines such as `POST /v1/embeddings 200`, and forgets it.
"""

import argparse
import asyncio
import contextlib
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.conformance.stand_ins import StandIns

LEDGER_PATH = "/_reached"
_DROPPED = frozenset({"authorization", "host", "connection", "transfer-encoding", "content-length", "accept-encoding"})
_SETTLE_S = 0.5
"""Seconds that requests in flight get before the ledger is read: a client may leave before the answer has begun."""


class Counter:
    """The proxy's state: what was answered, and what is on its way."""

    def __init__(self, session: aiohttp.ClientSession, server: str, key: str, admin_key: str) -> None:
        self._session = session
        self._server = server
        self._stand_ins = StandIns(session, server, key, admin_key)
        self._answered: list[str] = []
        self._waiting = 0
        self._settled = asyncio.Event()
        self._settled.set()

    async def ledger(self, request: web.Request) -> web.Response:
        """Give the ledger and begin a new one."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), _SETTLE_S)
        taken, self._answered = self._answered, []
        return web.json_response(taken)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on and its answer back; it counts once the server's status line is here."""
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED}
        headers["Authorization"] = f"Bearer {await self._stand_ins.key(request.method, request.path)}"
        body = await self._stand_ins.body(request.path, await request.read())
        path = await self._stand_ins.path(request.rel_url.raw_path, request.query_string)
        query = f"?{request.rel_url.raw_query_string}" if request.query_string else ""
        self._waiting += 1
        self._settled.clear()
        try:
            answer = await self._session.request(
                request.method, self._server + path + query, data=body or None, headers=headers
            )
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._settled.set()
        async with answer:
            self._answered.append(f"{request.method} {request.path} {answer.status}")
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _DROPPED}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response


async def _serve(port: int, server: str, key: str, admin_key: str) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        counter = Counter(session, server, key, admin_key)
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get(LEDGER_PATH, counter.ledger)
        app.router.add_route("*", "/{path:.*}", counter.forward)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("port", type=int)
    arguments.add_argument("server")
    arguments.add_argument("key_file", type=Path)
    arguments.add_argument("admin_key_file", type=Path)
    given = arguments.parse_args()
    keys = (file.read_text().strip() for file in (given.key_file, given.admin_key_file))
    asyncio.run(_serve(given.port, given.server, *keys))
