"""Routes on plain ASGI that take a body as it comes: a caller with a key and within its limits, an answer in JSON."""

import logging
from collections.abc import Awaitable, Callable

from pydantic import BaseModel

from api.asgi import ASGIApp, ClientGone, Exchange, Receive, Scope, Send
from api.services import Services
from infra.errors import CoderAIError
from infra.tokens import Key

log = logging.getLogger("api.media")

Take = Callable[[Exchange, Key], Awaitable[BaseModel]]
"""Takes a request whole, and gives what is answered."""


def answering(services: Services, take: Take) -> ASGIApp:
    """The route of `take`: whatever goes wrong is answered in OpenAI's shape."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            made = await _admitted(services, exchange, take)
            await exchange.answer(200, made.model_dump_json(exclude_none=True).encode())
        except ClientGone:
            return
        except CoderAIError as error:
            await exchange.fail(error, [])
        except Exception as error:
            log.exception("POST %s failed", exchange.path)
            await exchange.fail(error, [])

    return answer


async def _admitted(services: Services, exchange: Exchange, take: Take) -> BaseModel:
    key = services.auth.require(exchange.headers, "user")
    services.limits.enter(key.name)
    try:
        return await take(exchange, key)
    finally:
        services.limits.leave(key.name)
