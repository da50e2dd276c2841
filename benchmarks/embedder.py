"""An embedder that takes a fixed time an input and does nothing else: a llama-server as far as an install can tell.

`SIMULATED_ITEM_S` is that time in seconds; one request after the other, as a card does them.
"""

import argparse
import asyncio
import base64
from array import array

from aiohttp import web

from infra.settings import inherited_environment

ITEM_S = "SIMULATED_ITEM_S"
_VECTOR = [round(number / 400, 4) for number in range(384)]
_TEXT = base64.b64encode(array("f", _VECTOR).tobytes()).decode()


class Embedder:
    """The routes that an install asks."""

    def __init__(self, item_s: float) -> None:
        self._item_s = item_s
        self._busy = asyncio.Lock()

    async def embed(self, request: web.Request) -> web.Response:
        """Vectors that are all alike."""
        asked = await request.json()
        inputs, vector = asked["input"], _TEXT if asked.get("encoding_format") == "base64" else _VECTOR
        texts = inputs if isinstance(inputs, list) else [inputs]
        async with self._busy:
            await asyncio.sleep(self._item_s * len(texts))
        data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(len(texts))]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        return web.json_response({"object": "list", "model": "m", "data": data, "usage": usage})

    async def known(self, _request: web.Request) -> web.Response:
        """Health and properties."""
        return web.json_response({"status": "ok"})


def main() -> None:
    """Serve until a signal."""
    arguments = argparse.ArgumentParser(prog="embedder", allow_abbrev=False, add_help=False)
    arguments.add_argument("--help", action="store_true")
    arguments.add_argument("--model")
    arguments.add_argument("--port", type=int, default=0)
    given, _others = arguments.parse_known_args()
    if given.help:
        print("--model FNAME    the weights\n--port PORT    where to listen")
        return
    asyncio.run(_serve(given.port, float(inherited_environment().get(ITEM_S, "0"))))


async def _serve(port: int, item_s: float) -> None:
    embedder, app = Embedder(item_s), web.Application(client_max_size=2**30)
    app.router.add_post("/v1/embeddings", embedder.embed)
    app.router.add_get("/health", embedder.known)
    app.router.add_get("/props", embedder.known)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    main()
