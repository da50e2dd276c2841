"""`/login` and `/logout`: an admin key for a cookie, by form or by JSON."""

import re
from http import HTTPStatus
from urllib.parse import parse_qs

import orjson

from api.admin import pages
from api.admin.guard import require_no_foreign_page
from api.admin.sessions import Sessions
from api.admin.tries import Tries
from api.asgi import Exchange, parse_object
from api.auth import Auth
from api.errors import Headers, error_headers
from infra.error_object import status_of
from infra.errors import CoderAIError, InvalidRequest

HOME = "/flows/"
_BODY_MOST_BYTES = 16 * 1024
_LOCAL = re.compile(r"/(flows|admin)(/[!-\[\]-~]*|\?[!-\[\]-~]*)?")
"""A path of ours, in the visible characters of ASCII but for the backslash, which browsers take for a slash."""


def local_path(path: str) -> str:
    """Where to go after a login: `path` if it is one of our own pages, else the flow runs."""
    return path if _LOCAL.fullmatch(path) and len(path) <= 2000 else HOME


class Login:
    """The two pages."""

    def __init__(self, auth: Auth, sessions: Sessions, tries: Tries) -> None:
        self._auth = auth
        self._sessions = sessions
        self._tries = tries

    async def log_in(self, exchange: Exchange) -> None:
        """GET shows the form, POST takes `key` and `next`.

        A login answers 303 to `next`, or 200 `{"key": NAME, "next": PATH}` to JSON.

        Raises:
            CoderAIError: JSON that brings no login, or a request that another site's page made.
        """
        if exchange.scope["method"] in ("GET", "HEAD"):
            await self._show(exchange)
        elif exchange.scope["method"] != "POST":
            await refuse_method(exchange)
        elif "json" in (exchange.header(b"content-type") or ""):
            await self._by_json(exchange)
        else:
            await self._by_form(exchange)

    async def log_out(self, exchange: Exchange) -> None:
        """GET shows a button, POST ends the login.

        Raises:
            Forbidden: another site's page made the request.
        """
        if exchange.scope["method"] in ("GET", "HEAD"):
            await exchange.answer(200, pages.logout_page(), pages.HEADERS)
        elif exchange.scope["method"] != "POST":
            await refuse_method(exchange)
        else:
            require_no_foreign_page(exchange.headers)
            await redirect(
                exchange, "/login", [(b"set-cookie", self._sessions.end(secure=by_https(exchange)).encode())]
            )

    async def _show(self, exchange: Exchange) -> None:
        query = parse_qs(exchange.scope["query_string"].decode("latin-1"))
        next_path = local_path(query.get("next", [HOME])[0])
        if self._sessions.find(exchange.scope["headers"]) is not None:
            await redirect(exchange, next_path)
        elif exchange.header(b"sec-fetch-site") == "cross-site":
            await exchange.answer(200, pages.once_more_page(next_path), pages.HEADERS)
        else:
            await exchange.answer(200, pages.login_page(next_path), pages.HEADERS)

    async def _by_form(self, exchange: Exchange) -> None:
        require_no_foreign_page(exchange.headers)
        fields = parse_qs((await exchange.body(_BODY_MOST_BYTES)).decode("latin-1"))
        next_path = local_path(fields.get("next", [HOME])[0])
        try:
            cookie, _name = self._begin(exchange, fields.get("key", [""])[0])
        except CoderAIError as error:
            headers = [pair for pair in error_headers(error) if pair[0] == b"retry-after"]
            page = pages.login_page(next_path, error.message)
            await exchange.answer(status_of(error), page, pages.HEADERS + headers)
        else:
            await redirect(exchange, next_path, [(b"set-cookie", cookie)])

    async def _by_json(self, exchange: Exchange) -> None:
        require_no_foreign_page(exchange.headers)
        fields = parse_object(await exchange.body(_BODY_MOST_BYTES))
        key, next_path = fields.get("key"), fields.get("next", HOME)
        if not isinstance(key, str) or not isinstance(next_path, str):
            raise InvalidRequest("send the admin key as the text `key`, and a path of ours as `next`", param="key")
        cookie, name = self._begin(exchange, key)
        body = orjson.dumps({"key": name, "next": local_path(next_path)})
        await exchange.answer(
            200,
            body,
            [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"set-cookie", cookie)],
        )

    def _begin(self, exchange: Exchange, secret: str) -> tuple[bytes, str]:
        """The cookie of a login, and the key's name."""
        try:
            key = self._auth.admin(secret.strip())
        except CoderAIError:
            client = exchange.scope["client"]
            self._tries.failed(client[0] if client else "")
            raise
        return self._sessions.begin(key, secure=by_https(exchange)).encode(), key.name


def by_https(exchange: Exchange) -> bool:
    """Whether the browser came by https, as far as a TLS proxy in front of us tells. A client that lies here gets a
    cookie that its browser keeps to https, and nothing else."""
    return exchange.scope["scheme"] == "https" or exchange.header(b"x-forwarded-proto") == "https"


async def redirect(exchange: Exchange, path: str, headers: Headers | None = None) -> None:
    """Send a browser to another page of ours, by GET."""
    head = [(b"location", path.encode()), (b"cache-control", b"no-store"), *(headers or [])]
    await exchange.answer(HTTPStatus.SEE_OTHER, b"", head)


async def refuse_method(exchange: Exchange) -> None:
    """Answer 405."""
    await exchange.answer(
        HTTPStatus.METHOD_NOT_ALLOWED,
        pages.message_page("Method not allowed", "This page takes GET and POST."),
        [*pages.HEADERS, (b"allow", b"GET, HEAD, POST")],
    )
