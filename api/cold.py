"""What the routes on FastAPI share: the services, the caller, errors in OpenAI's shape."""

import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, cast

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException as FrameworkError

from api.asgi import headers_by_name
from api.errors import error_body, error_headers
from api.services import Services
from infra.error_object import status_of
from infra.errors import CoderAIError, InvalidRequest, NotFound
from infra.tokens import Key, Scope
from infra.wording import sentence

log = logging.getLogger("api.cold")

_NAME_CHARS = 200
"""Of a field's name that an error repeats."""


async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(_services)]


def _require(scope: Scope) -> Callable[[Request], Awaitable[Key]]:
    async def caller(request: Request) -> Key:
        return (await _services(request)).auth.require(headers_by_name(request.scope["headers"]), scope)

    return caller


UserKey = Annotated[Key, Depends(_require("user"))]
AdminKey = Annotated[Key, Depends(_require("admin"))]


def respond(error: BaseException, status: int | None = None) -> Response:
    """An error as an answer."""
    headers = {name.decode(): value.decode() for name, value in error_headers(error)}
    return Response(error_body(error), status or status_of(error), headers)


def _invalid(detail: ErrorDetails) -> InvalidRequest:
    """A field of a body, path or query that is not as it should be, in the hot routes' words."""
    param = ".".join(str(part)[:_NAME_CHARS] for part in detail["loc"][1:])
    if not param or detail["type"] == "json_invalid":
        return InvalidRequest("the request's body must be a JSON object, sent with Content-Type: application/json")
    if detail["type"] == "extra_forbidden":
        said = f"Unrecognized request argument supplied: {param}"
        return InvalidRequest(said, param=param, code="unknown_parameter")
    return InvalidRequest(sentence(param, detail), param=param)


def install_handlers(app: FastAPI, hot_paths: frozenset[str]) -> None:
    """Answer every error of these routes in OpenAI's shape; unknown paths are closed without a key, too."""

    async def ours(_request: Request, error: Exception) -> Response:
        return respond(error)

    async def invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return respond(_invalid(error.errors()[0]))

    async def framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, FrameworkError)
        try:
            (await _services(request)).auth.require(headers_by_name(request.scope["headers"]), "user")
        except CoderAIError as closed:
            return respond(closed)
        path, method = request.url.path, request.method
        if error.status_code == 405 or path in hot_paths:
            return respond(InvalidRequest(f"{path} does not take {method}", code="method_not_allowed"), 405)
        if error.status_code == 404:
            return respond(NotFound(f"there is no {method} {path}; see GET /openapi.json", code="unknown_url"))
        return respond(InvalidRequest(str(error.detail)), error.status_code)

    async def bug(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return respond(error)

    app.add_exception_handler(CoderAIError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(FrameworkError, framework)
    app.add_exception_handler(Exception, bug)
