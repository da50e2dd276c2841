"""A far service for tests that makes files: as strict about a request's fields as OpenAI's own."""

import asyncio
import base64
from typing import Any

from aiohttp import BodyPartReader, web

from infra.types import EngineId, Json, PoolId
from tests.fakes import make_entry
from tests.pictures import encoded, gradient
from workers.live import Engine
from workers.types import Capability, ModelFormat

KEY = "sk-far"
GENERATED, EDITED, FILMED = "/v1/images/generations", "/v1/images/edits", "/v1/video/generations"
VARIED = "/v1/images/variations"
OPENAI = frozenset({"prompt", "model", "n", "size", "quality", "style", "user", "response_format"})
"""What dall-e takes; gpt-image takes no `response_format`."""
EDITS = frozenset({"image", "mask"})
MP4 = b"\0\0\0\x18ftypisom" + bytes(12)
PICTURE = encoded(gradient())


class FarService:
    """Makes `made`, once a request. `takes` are the fields that it knows; `answer` is what it says, if not that.

    Where nobody asks for base64 it answers with an address: of its own, or `address`.
    """

    def __init__(self, made: bytes = PICTURE) -> None:
        self.made = made
        self.takes: frozenset[str] = OPENAI
        self.beside: dict[str, Json] = {}
        self.always_url = self.always_inline = False
        self.address = ""
        self.status = 200
        self.answer: bytes | None = None
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.files: list[dict[str, bytes]] = []
        self.kinds: list[dict[str, tuple[str | None, str | None]]] = []
        self.fetched: list[str | None] = []
        self.left = asyncio.Event()
        """Set when a reader of an answer without an end has gone."""
        self.moved_to = ""
        self.endless = b""

    def app(self) -> web.Application:
        """The service, to be served."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/made/{name}", self._file)
        for path in (GENERATED, EDITED, VARIED, FILMED):
            app.router.add_post(path, self._make)
        return app

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": []})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        self.fetched.append(request.headers.get("Authorization"))
        match request.match_info["name"]:
            case "moved":
                return web.Response(status=302, headers={"Location": "/made/1"})
            case "slow":
                return await self._begun(request, bytes(10))
            case "endless":
                return await self._begun(request, *[bytes(1 << 20)] * 1000)
            case _:
                return web.Response(body=self.made)

    async def _begun(self, request: web.Request, *pieces: bytes) -> web.StreamResponse:
        """An answer that goes on until its reader has had enough."""
        answer = web.StreamResponse(status=self.status)
        await answer.prepare(request)
        try:
            for piece in pieces:
                await answer.write(piece)
            await asyncio.Event().wait()
        finally:
            self.left.set()
        return answer

    async def _make(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return refused(401, "Incorrect API key provided", code="invalid_api_key")
        body = await self._body(request)
        self.paths.append(request.path)
        self.asked.append(body)
        allowed = self.takes | EDITS if request.path in (EDITED, VARIED) else self.takes
        for name in body:
            if name not in allowed:
                return refused(400, f"Unknown parameter: '{name}'.", name, "unknown_parameter")
        if self.moved_to:
            raise web.HTTPTemporaryRedirect(self.moved_to)
        return await self._answered(request, body)

    async def _answered(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if self.endless:
            return await self._begun(request, *[self.endless] * 1000)
        if self.status == 401:
            return refused(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key")
        if self.status != 200:
            return refused(self.status, "Your request was rejected by the safety system.", "prompt", "moderation")
        if self.answer is not None:
            return web.Response(body=self.answer, content_type="application/json")
        return web.json_response({"created": 1, "data": [self._item(request, body)]})

    async def _body(self, request: web.Request) -> dict[str, Any]:
        if not request.content_type.startswith("multipart/"):
            found = await request.json()
            assert isinstance(found, dict)
            return found
        fields: dict[str, Any] = {}
        files: dict[str, bytes] = {}
        kinds: dict[str, tuple[str | None, str | None]] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            data, name = bytes(await part.read()), str(part.name)
            if part.filename is None:
                fields[name] = data.decode()
            else:
                files[name] = data
                kinds[name] = (part.filename, part.headers.get("Content-Type"))
        self.files.append(files)
        self.kinds.append(kinds)
        return fields

    def _item(self, request: web.Request, body: dict[str, Any]) -> dict[str, Json]:
        form = body.get("response_format") or ("b64_json" if self.always_inline else "url")
        if form == "url" or self.always_url:
            return {"url": self.address or str(request.url.with_path("/made/1")), **self.beside}
        return {form: base64.b64encode(self.made).decode(), **self.beside}


def refused(status: int, message: str, param: str | None = None, code: str = "error") -> web.Response:
    """A refusal in OpenAI's shape."""
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return web.json_response({"error": error}, status=status)


def far_engine(url: str) -> Engine:
    """The engine that stands for a service at this `/v1`."""
    entry = make_entry(
        "painter",
        format=ModelFormat.SERVICE,
        path=None,
        service_url=url,
        served_model="dall-e-3",
        capabilities=(Capability.IMAGES, Capability.VIDEO),
    )
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    return Engine(EngineId("service:far/painter"), entry, PoolId("service:far"), False, 1, url, headers)
