"""The yardstick: the least that a Python proxy on aiohttp can do. No keys, no checks, no record.

`python -m benchmarks.bare_proxy PORT UPSTREAM_URL` passes every POST below `/v1` and its answer through unread.
"""

import argparse
import asyncio

import aiohttp
import uvloop
from aiohttp import web

_SESSION = web.AppKey("session", aiohttp.ClientSession)
_UPSTREAM = web.AppKey("upstream", str)


async def forward(request: web.Request) -> web.StreamResponse:
    """Pass one request on, and its answer back as it comes."""
    url = request.app[_UPSTREAM] + request.path_qs
    headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
    body = await request.read()
    async with request.app[_SESSION].request(request.method, url, data=body, headers=headers) as answer:
        content_type = answer.headers.get("Content-Type", "application/octet-stream")
        if not content_type.startswith("text/event-stream"):
            whole = await answer.read()
            return web.Response(body=whole, status=answer.status, headers={"Content-Type": content_type})
        response = web.StreamResponse(status=answer.status, headers={"Content-Type": content_type})
        await response.prepare(request)
        async for data in answer.content.iter_any():
            await response.write(data)
        await response.write_eof()
        return response


async def _serve(port: int, upstream: str) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        app = web.Application()
        app[_SESSION] = session
        app[_UPSTREAM] = upstream
        app.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("port", type=int)
    arguments.add_argument("upstream")
    given = arguments.parse_args()
    uvloop.run(_serve(given.port, given.upstream))
