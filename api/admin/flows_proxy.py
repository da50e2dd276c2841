"""The flow-run server's UI and API under /flows: every byte passes through as it comes, both ways."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator

import aiohttp
import orjson

from api.admin.flows_paths import API, UI_SETTINGS, canonical, require_allowed
from api.admin.upstream import RETRY_S, Upstream
from api.asgi import ClientGone, ClientWatch, Exchange
from api.errors import Headers
from infra.errors import FlowsUnavailable, PayloadTooLarge

log = logging.getLogger("api.admin.flows")

_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]+")


class FlowsProxy:
    """Asks the flow-run server what an admin asked us."""

    def __init__(self, upstream: Upstream, max_body_bytes: int) -> None:
        self._upstream = upstream
        self._max_body_bytes = max_body_bytes

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request; its sender is an admin.

        Raises:
            CoderAIError: it cannot be passed on, or nothing answers.
            ClientGone: the client left.
        """
        with ClientWatch(exchange.client) as watch:
            try:
                await self._pass_on(exchange)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or not watch.gone:
                    raise
                task.uncancel()

    async def _pass_on(self, exchange: Exchange) -> None:
        scope = exchange.scope
        require_allowed(scope["method"], exchange.path)
        url = self._upstream.url(canonical(exchange.path), scope["query_string"])
        headers = self._upstream.request_headers(scope["headers"])
        if exchange.path == UI_SETTINGS:
            headers["Accept-Encoding"] = "identity"
        body = RequestBody(exchange, self._max_body_bytes)
        try:
            async with self._upstream.session.request(
                scope["method"], url, headers=headers, data=body.parts() if body.comes else None, allow_redirects=False
            ) as answer:
                await self._answer(exchange, answer)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._explain(exchange, body, error)

    def _explain(self, exchange: Exchange, body: "RequestBody", error: Exception) -> None:
        """Say whose fault a broken exchange is.

        Raises:
            FlowsUnavailable, PayloadTooLarge, ClientGone: as it was.
        """
        if body.fault is not None:
            raise body.fault
        words = str(error) or type(error).__name__
        if not exchange.answered:
            raise FlowsUnavailable(
                f"the flow-run server did not answer ({words}); try again", retry_after_s=RETRY_S
            ) from error
        # The client is told by the end of its connection, short of the answer's.
        log.warning("the flow-run server broke off its answer to %s: %s", exchange.path, words)

    async def _answer(self, exchange: Exchange, answer: aiohttp.ClientResponse) -> None:
        if answer.status == 401:
            raise FlowsUnavailable("the flow-run server does not take our key; restart it", retry_after_s=RETRY_S)
        headers = self._upstream.answer_headers(answer) + page_headers(exchange)
        if exchange.path == UI_SETTINGS and exchange.scope["method"] == "GET" and answer.status == 200:
            await self._answer_ui_settings(exchange, answer, headers)
            return
        exchange.answered, exchange.status = True, answer.status
        await exchange.send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for piece in answer.content.iter_any():
            await exchange.send({"type": "http.response.body", "body": piece, "more_body": True})
        await exchange.send({"type": "http.response.body", "body": b""})

    async def _answer_ui_settings(self, exchange: Exchange, answer: aiohttp.ClientResponse, headers: Headers) -> None:
        """Tell the UI that no password is needed: it would ask for the one that we send on its behalf."""
        try:
            settings = orjson.loads(await answer.read())
        except orjson.JSONDecodeError as error:
            raise FlowsUnavailable("the flow-run server's settings for its UI are not JSON") from error
        if not isinstance(settings, dict):
            raise FlowsUnavailable("the flow-run server's settings for its UI are no object")
        kept = [pair for pair in headers if pair[0] not in (b"content-length", b"etag")]
        await exchange.answer(200, orjson.dumps(settings | {"auth": None}), kept)


class RequestBody:
    """A request's body on its way through; `fault` is why it broke off."""

    def __init__(self, exchange: Exchange, max_bytes: int) -> None:
        self._exchange = exchange
        self._max_bytes = max_bytes
        self.fault: PayloadTooLarge | ClientGone | None = None
        length = exchange.header(b"content-length")
        if length is not None and length.isdecimal() and int(length) > max_bytes:
            raise self._too_large()
        self.comes = length not in (None, "0") or b"transfer-encoding" in exchange.headers

    async def parts(self) -> AsyncIterator[bytes]:
        """What comes, as it comes; the client waits while the other side is full."""
        size_bytes, more = 0, True
        while more:
            message = await self._exchange.receive()
            if message["type"] == "http.disconnect":
                self.fault = ClientGone()
                raise self.fault
            part, more = message.get("body", b""), message.get("more_body", False)
            size_bytes += len(part)
            if size_bytes > self._max_bytes:
                self.fault = self._too_large()
                raise self.fault
            if part:
                yield part

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"the request's body is over the limit of {self._max_bytes // 2**20} MiB; send less")


def page_headers(exchange: Exchange) -> Headers:
    """What a browser may do with an answer of the flow-run server's.

    Its pages have no scripts but files; the one that draws a run's graph makes code at run time (`unsafe-eval`).
    Its UI calls an analytics company's hosts from the browser, whatever its settings: `connect-src` stops that. (It is
    given this host's WebSockets by name, because older Safari does not take them for `'self'`.)
    """
    host = exchange.header(b"host") or ""
    sockets = f" ws://{host} wss://{host}" if _HOST.fullmatch(host) else ""
    policy = (
        "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        f"img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'{sockets}; worker-src 'self' blob:; "
        "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
    )
    keep = b"no-store" if exchange.path.startswith(API) else b"private, no-cache"
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"same-origin"),
        (b"cache-control", keep),
    ]
