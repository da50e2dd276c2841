"""A server on this machine alone, for the fakes: aiohttp on a free port of 127.0.0.1."""

from typing import Any

from aiohttp import web


async def serve(app: web.Application, **options: Any) -> tuple[web.AppRunner, str]:
    """Start it; returns what ends it (`cleanup`) and its address. `options` are the runner's."""
    runner = web.AppRunner(app, shutdown_timeout=0.1, **options)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"
