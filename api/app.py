"""The front as one ASGI application: hot routes by one dict access, everything else on FastAPI."""

from typing import Any

from fastapi import FastAPI

from api.admin import engines, health
from api.asgi import Receive, Scope, Send
from api.cold import UserKey, install_handlers
from api.openai import models, plan
from api.openai.endpoint import Endpoint
from api.openai.resources import PATHS, RESOURCES
from api.openapi import document
from api.services import Services


class App:
    """Dispatches by method and path."""

    def __init__(self, services: Services) -> None:
        self._hot = {("POST", path): Endpoint(services, RESOURCES[name]) for path, name in PATHS.items()}
        self._cold = cold_app()
        self._cold.state.services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's request, or the server's own lifespan."""
        if scope["type"] == "http":
            hot = self._hot.get((scope["method"], scope["path"]))
            if hot is not None:
                await hot(scope, receive, send)
                return
        await self._cold(scope, receive, send)


def cold_app() -> FastAPI:
    """The routes on FastAPI; `state.services` is set by whoever serves it."""
    app = FastAPI(title="CoderAI", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for router in (models.router, plan.router, engines.router, health.router):
        app.include_router(router)

    @app.get("/openapi.json", summary="This document", tags=["health"])
    async def openapi(_key: UserKey) -> dict[str, Any]:
        """Every route of this server, the plain ASGI ones included."""
        return document(app)

    install_handlers(app, frozenset(PATHS))
    return app


def build_openapi() -> dict[str, Any]:
    """The server's OpenAPI document, without a server."""
    return document(cold_app())
