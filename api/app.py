"""The front as one ASGI application: hot routes by one dict access, everything else on FastAPI."""

import functools
from collections.abc import Iterable
from typing import Any

import orjson
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from api.admin import engines, health, pools, processes
from api.admin.site import Site
from api.asgi import ASGIApp, ClientGone, Exchange, Message, Receive, Scope, Send, parse_object
from api.cold import UserKey, install_handlers
from api.file_serving import GeneratedArea
from api.internal.app import internal_app
from api.media import lora_routes
from api.media.images import DRAWS, drawing
from api.media.lora_intake import LoraIntake
from api.media.making import MakingEndpoint
from api.media.ocr import READS, OcrEndpoint
from api.media.video import FILMING
from api.media.video import PATH as FILMS
from api.openai import batches, files, models, plan, progress, runs, uploads
from api.openai.audio import SOUNDS, SoundEndpoint
from api.openai.chats import routes as chats
from api.openai.endpoint import Endpoint
from api.openai.file_intake import FileIntake
from api.openai.resources import PATHS, RESOURCES
from api.openai.responses import routes as responses
from api.openai.speech import SPEAKS, SpeechEndpoint
from api.openapi import document
from api.services import Services
from infra.errors import CoderAIError, InvalidRequest
from infra.types import Json

_STATES = ("cancelled", "completed", "crashed", "failed", "pending", "running", "scheduled")
_ICONS = ("ico", "favicon.ico", "favicon-dark.ico", *(f"{state}.svg" for state in _STATES))
_SITE = ("flows", "login", "logout", "admin", *_ICONS)
_OPEN = frozenset({"/healthz", "/metrics"})
"""Paths that need no key, or look at the settings for it themselves."""
_FILES = ("/v1/files", "/v1/uploads", "/v1/loras")
_DEEPEST = 200


class App:
    """Dispatches by method and path."""

    def __init__(self, services: Services) -> None:
        self._hot: dict[tuple[str, str], ASGIApp] = {
            ("POST", path): Endpoint(services, RESOURCES[name]) for path, name in PATHS.items()
        }
        sound = RESOURCES["transcription"]
        self._hot |= {("POST", path): SoundEndpoint(services, sound, task) for path, task in SOUNDS.items()}
        reading = RESOURCES["ocr"]
        self._hot |= {("POST", path): OcrEndpoint(services, reading, batch=batch) for path, batch in READS.items()}
        images = RESOURCES["images"]
        self._hot |= {("POST", path): MakingEndpoint(services, images, drawing(task)) for path, task in DRAWS.items()}
        self._hot["POST", FILMS] = MakingEndpoint(services, RESOURCES["video"], FILMING)
        self._hot["POST", SPEAKS] = SpeechEndpoint(services, RESOURCES["speech"])
        self._services = services
        self._max_body_bytes = services.settings.server.max_body_mb * 2**20
        self._cold = cold_app()
        self._cold.state.services = services
        self.site = Site(services, functools.partial(runs.answer_response, services))
        self._streamed = (FileIntake(services).find, GeneratedArea(services).find, LoraIntake(services).find)
        internal = internal_app(services)
        self._areas: dict[str, ASGIApp] = {"internal": internal} | dict.fromkeys(_SITE, self.site)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's request, or the server's own lifespan."""
        if scope["type"] == "http":
            hot = self._hot.get((scope["method"], scope["path"]))
            if hot is not None:
                await hot(scope, receive, send)
            elif (area := self._area(scope)) is not None:
                await area(scope, receive, send)
            else:
                await self._answer_cold(scope, receive, send)
        else:
            await (self._area(scope) or self._cold)(scope, receive, send)

    async def aclose(self) -> None:
        """Close what its parts hold open."""
        await self.site.aclose()

    def _area(self, scope: Scope) -> ASGIApp | None:
        """Who answers below the path's first part, under rules of its own for who may come in."""
        path = scope.get("path", "")
        if path.startswith("/admin/api"):
            return None
        if path.startswith(_FILES) and scope["type"] == "http":
            finders = (find(scope["method"], path) for find in self._streamed)
            return next((found for found in finders if found is not None), None)
        return self._areas.get(path.split("/", 2)[1]) if path.startswith("/") else None

    async def _answer_cold(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let FastAPI answer, once the caller has a key and the body is within the limit: it would read any."""
        exchange = Exchange(scope, receive, send)
        try:
            if exchange.path not in _OPEN:
                self._services.auth.require(exchange.headers, "user")
            body = await exchange.body(self._max_body_bytes)
            if body and "json" in (exchange.header(b"content-type") or "json"):
                _require_repeatable(body)
        except ClientGone:
            return
        except CoderAIError as error:
            await exchange.fail(error, [])
            return
        await self._cold(scope, _given(body, receive), send)


def _require_repeatable(body: bytes) -> None:
    """FastAPI's own parser passes on what no answer could repeat: half a character, NaN, a depth without end.

    Raises:
        InvalidRequest: there is such a thing in the body, or it is no JSON object.
    """
    level: list[Json] = [parse_object(body)]
    for _ in range(_DEEPEST):
        level = [child for value in level for child in _children(value)]
        if not level:
            return
    raise InvalidRequest(f"the request's body is nested deeper than {_DEEPEST} levels: flatten it", code="invalid_json")


def _children(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _given(body: bytes, receive: Receive) -> Receive:
    """`receive` for a request whose body has been read."""
    waiting = [body]

    async def receive_rest() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receive_rest


def cold_app() -> FastAPI:
    """The routes on FastAPI; `state.services` is set by whoever serves it."""
    app = FastAPI(title="CoderAI", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for router in (
        models.router,
        files.router,
        lora_routes.router,
        uploads.router,
        batches.router,
        chats.router,
        responses.router,
        plan.router,
        progress.router,
        runs.router,
        pools.router,
        engines.router,
        processes.router,
        health.router,
    ):
        app.include_router(router)

    @functools.cache
    def text() -> bytes:
        return orjson.dumps(document(app))

    @app.get("/openapi.json", summary="This document", tags=["health"], response_class=JSONResponse)
    def openapi(_key: UserKey) -> Response:  # in a thread: the first call takes a tenth of a second
        """Every route of this server, the plain ASGI ones included."""
        return Response(text(), media_type="application/json")

    install_handlers(app, frozenset((*PATHS, SPEAKS, *SOUNDS, *READS, *DRAWS, FILMS)))
    return app


def build_openapi() -> dict[str, Any]:
    """The server's OpenAPI document, without a server."""
    return document(cold_app())
