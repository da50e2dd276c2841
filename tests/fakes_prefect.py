"""A fake of what the front passes on of Prefect's server: UI, API and streams, on a real socket.

Strict as the real one: Basic authentication, the sub-protocol and the first message of a WebSocket. Stricter, too: what
must never come through the front is written down in `complaints`.
"""

import asyncio
import base64
import gzip
import hashlib
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import WSMsgType, web

from infra.prefect_address import PrefectAddress
from tests.loopback import serve

TOKEN = "coderai:0123456789abcdef"
AUTHORIZATION = "Basic " + base64.b64encode(TOKEN.encode()).decode()
API = "/flows/api"
UI_SETTINGS = {"api_url": "/flows/api", "csrf_enabled": False, "auth": "BASIC", "default_ui": "v2", "flags": []}
SCRIPT = b"export const answer = 42;" * 200
_NEVER = ("origin", "referer", "forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-secret-hop")


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass
class FakePrefectServer:
    """The server. `download_bytes` is the size of a log's download; `endless` never ends it."""

    download_bytes: int = 1000
    endless: bool = False
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    """Messages over WebSockets after the log-in."""
    sent_bytes: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """A client broke off a download."""
    closed: list[int | None] = field(default_factory=list)
    """Closing codes of WebSockets that clients ended."""
    sockets: list[web.WebSocketResponse] = field(default_factory=list)
    password: str = TOKEN
    _runner: web.AppRunner | None = None

    @property
    def address(self) -> PrefectAddress:
        """Where it is, and what opens it."""
        return PrefectAddress(AUTHORIZATION, self.url)

    @property
    def last(self) -> Seen:
        """The last request."""
        return self.seen[-1]

    async def __aenter__(self) -> "FakePrefectServer":
        app = web.Application(middlewares=[self._door], client_max_size=2**30)
        app.router.add_get("/flows", self._to_slash)
        app.router.add_get("/flows/ui-settings", self._ui_settings)
        app.router.add_get("/flows/assets/app.js", self._script)
        app.router.add_get(API + "/admin/{what}", self._admin)
        app.router.add_post(API + "/flow_runs", self._to_slash)
        app.router.add_post(API + "/flow_runs/filter", self._runs)
        app.router.add_post(API + "/logs/", self._keep)
        app.router.add_get(API + "/flow_runs/{id}/logs/download", self._download)
        app.router.add_get(API + "/flow_runs/{id}/broken", self._broken)
        app.router.add_get(API + "/flow_runs/{id}", self._run)
        for name in ("events/out", "events/in", "logs/out"):
            app.router.add_get(f"{API}/{name}", self._stream)
        app.router.add_get("/flows/{path:.*}", self._page)
        # auto_decompress is the server's side of aiohttp: bodies are kept as they come.
        self._runner, self.url = await serve(app, auto_decompress=False)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @web.middleware
    async def _door(self, request: web.Request, handler: Any) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self._complain(request, headers)
        body = b"" if request.path == API + "/logs/" else await request.read()
        self.seen.append(Seen(request.method, request.raw_path.partition("?")[0], request.query_string, headers, body))
        if request.path.startswith(API + "/") and "upgrade" not in headers:
            given = headers.get("authorization", "").removeprefix("Basic ").encode()
            if base64.b64decode(given) != self.password.encode():
                return web.json_response({"exception_message": "Unauthorized"}, status=401)
        answer = cast("web.StreamResponse", await handler(request))
        if not answer.prepared:
            answer.headers["Access-Control-Allow-Origin"] = "*"
            answer.headers["Set-Cookie"] = "spy=1"
            answer.headers["Connection"] = "keep-alive, X-Hop"
            answer.headers["X-Hop"] = "1"
        return answer

    def _complain(self, request: web.Request, headers: dict[str, str]) -> None:
        wrong = [name for name in _NEVER if name in headers]
        cookie = headers.get("cookie")
        if cookie is not None and cookie not in ("prefect_ui_version=v1", "prefect_ui_version=v2"):
            wrong.append(f"cookie {cookie}")
        if headers.get("authorization", AUTHORIZATION) != AUTHORIZATION:
            wrong.append("authorization")
        if not request.path.startswith("/flows") or ".." in request.path:
            wrong.append("path")
        self.complaints += [f"{request.method} {request.raw_path}: {what}" for what in wrong]

    async def _to_slash(self, request: web.Request) -> web.Response:
        query = f"?{request.query_string}" if request.query_string else ""
        return web.Response(status=307, headers={"Location": f"{self.url}{request.path}/{query}"})

    async def _ui_settings(self, _request: web.Request) -> web.Response:
        return web.json_response(UI_SETTINGS, headers={"ETag": '"s"'})

    async def _script(self, request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == '"js"':
            return web.Response(status=304, headers={"ETag": '"js"'})
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=SCRIPT, content_type="text/javascript")
        zipped = gzip.compress(SCRIPT)
        return web.Response(body=zipped, content_type="text/javascript", headers={"Content-Encoding": "gzip"})

    async def _page(self, request: web.Request) -> web.Response:
        if request.path == "/flows/" or "text/html" in request.headers.get("Accept", ""):
            return web.Response(text="<html>ui</html>", content_type="text/html", headers={"Server": "uvicorn"})
        return web.json_response({"detail": "Not Found"}, status=404)

    async def _admin(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "3.9.1"}[request.match_info["what"]])

    async def _runs(self, _request: web.Request) -> web.Response:
        return web.json_response([])

    async def _run(self, request: web.Request) -> web.Response:
        return web.json_response({"id": request.match_info["id"]})

    async def _keep(self, request: web.Request) -> web.Response:
        digest, size = hashlib.sha256(), 0
        async for part in request.content.iter_any():
            digest.update(part)
            size += len(part)
        return web.json_response({"size": size, "sha256": digest.hexdigest()}, status=201)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/csv"})
        await answer.prepare(request)
        try:
            while self.endless or self.sent_bytes < self.download_bytes:
                await answer.write(b"a,b,c\n" * 10_000)
                self.sent_bytes += 60_000
        except (ConnectionError, asyncio.CancelledError):
            self.left.set()
            raise
        await answer.write_eof()
        return answer

    async def _broken(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"[1, 2")
        assert request.transport is not None
        request.transport.abort()
        return answer

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if "prefect" not in request.headers.get("Sec-WebSocket-Protocol", ""):
            return web.Response(status=403)
        socket = web.WebSocketResponse(protocols=("prefect",), max_msg_size=2**22)
        await socket.prepare(request)
        login = await socket.receive_json()
        if login.get("type") != "auth" or login.get("token") != self.password:
            await socket.close(code=1008, message=b"Invalid token")
            return socket
        await socket.send_json({"type": "auth_success"})
        self.sockets.append(socket)
        async for message in socket:
            assert message.type is WSMsgType.TEXT
            self.heard.append(message.data)
            await socket.send_str(f"heard {message.data[:200]}")
        self.closed.append(socket.close_code)
        return socket
