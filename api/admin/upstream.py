"""The way to the flow-run server: its address now, one HTTP client session, and what passes between the two sides."""

import base64
import re
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from api.errors import Headers
from infra.errors import FlowsUnavailable, NotFound
from infra.prefect_address import PrefectAddress

RETRY_S = 2.0
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OURS_ALONE = _HOP_BY_HOP | {b"host", b"authorization", b"cookie", b"origin", b"referer", b"expect", b"forwarded"}
"""Of a request. The Origin has been checked; Prefect would answer it with leave for every site."""
_NOT_PASSED = _HOP_BY_HOP | {
    b"set-cookie",
    b"www-authenticate",
    b"server",
    b"date",
    b"location",
    b"cache-control",
    b"content-security-policy",
    b"x-content-type-options",
    b"referrer-policy",
}
_NO_BODY = (204, 304)
_UI_COOKIE = re.compile(rb"(?:^|;\s*)(prefect_ui_version=v[12])(?:;|$)")
"""Which of its two user interfaces a person chose: the one cookie that is the flow-run server's own."""


class Upstream:
    """Everything that is needed to ask the flow-run server; `address` is kept true by others."""

    def __init__(self, address: PrefectAddress | None) -> None:
        self._address = address
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """One client session, opened at first use.

        A connection serves one request: on loopback that costs nothing, and no request meets one that was just closed.
        There are as many as clients ask for: with a bound, open streams would keep every other request waiting.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=120),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        return self._session

    async def aclose(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def require(self) -> PrefectAddress:
        """Where it answers.

        Raises:
            NotFound: this install has none.
            FlowsUnavailable: it is not up.
        """
        if self._address is None:
            raise NotFound('flow runs are switched off here: set flows.server to "child" and start again')
        if self._address.url is None:
            raise FlowsUnavailable(f"the flow-run server is not up: {self._address.reason}", retry_after_s=RETRY_S)
        return self._address

    def url(self, path: str, query: bytes) -> URL:
        """The address of a canonical path.

        Raises:
            NotFound, FlowsUnavailable: see `require`.
        """
        text = f"{self.require().url}{path}"
        return URL(f"{text}?{query.decode('latin-1')}" if query else text, encoded=True)

    @property
    def token(self) -> str:
        """What its WebSockets take in their first message: user and password, as its Basic header has them encoded."""
        return base64.b64decode(self.require().authorization.removeprefix("Basic ")).decode()

    def request_headers(self, headers: Headers) -> CIMultiDict[str]:
        """A client's headers as the flow-run server gets them: our key, and nothing that is between client and us."""
        dropped = _OURS_ALONE | _named_by_connection(headers)
        passed: CIMultiDict[str] = CIMultiDict()
        for name, value in headers:
            if name == b"cookie" and (chosen := _UI_COOKIE.search(value)):
                passed.add("Cookie", chosen[1].decode())
            if name not in dropped and not name.startswith(b"x-forwarded-"):
                passed.add(name.decode("latin-1"), value.decode("utf-8", "replace"))
        passed["Authorization"] = self.require().authorization
        return passed

    def answer_headers(self, answer: aiohttp.ClientResponse) -> Headers:
        """Its answer's headers as a client gets them: none that sets cookies, lets other sites read, or leads away."""
        given = [(name.lower(), value) for name, value in answer.raw_headers]
        dropped = _NOT_PASSED | _named_by_connection(given)
        if answer.status in _NO_BODY:
            dropped |= {b"content-length"}
        passed = [pair for pair in given if pair[0] not in dropped and not pair[0].startswith(b"access-control-")]
        location = answer.headers.get("Location")
        return passed if location is None else [*passed, (b"location", relative(location).encode())]


def relative(location: str) -> str:
    """A redirect's target without scheme and host: whatever name the flow-run server goes by, it is reached by ours."""
    parts = urlsplit(location)
    path = "/" + parts.path.lstrip("/")
    if not path.startswith("/flows/"):
        path = "/flows/"
    return f"{path}?{parts.query}" if parts.query else path


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    """Headers that a `Connection` header says are for the next hop alone."""
    lines = [value for name, value in headers if name == b"connection"]
    return frozenset(word.strip().lower() for line in lines for word in line.split(b","))
