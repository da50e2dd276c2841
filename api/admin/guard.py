"""Who may see an operator's pages: an admin, by key or by login, and no page of another site in an admin's browser."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from api.admin.sessions import Sessions
from api.asgi import headers_by_name
from api.auth import Auth
from api.errors import Headers
from infra.errors import Forbidden, NotAuthenticated
from infra.tokens import Key

Named = Mapping[bytes, bytes]
_PORTS = {"http": ":80", "https": ":443"}


class Guard:
    """Decides by a request's headers alone."""

    def __init__(self, auth: Auth, sessions: Sessions) -> None:
        self._auth = auth
        self._sessions = sessions

    def admin(self, headers: Headers, *, changes: bool) -> Key:
        """The admin who asks; `changes`: the request may change something, or opens a WebSocket.

        Raises:
            NotAuthenticated: neither a key nor a login that is good.
            Forbidden: the key is no admin's, or the request was made by another site's page.
        """
        named = headers_by_name(headers)
        if named.get(b"authorization", b"")[:7].lower() == b"bearer ":
            key = self._auth.require(named, "admin")
            require_no_foreign_page(named)
            return key
        found = self._sessions.find(headers)
        if found is None:
            raise NotAuthenticated(
                "log in at /login with an admin key, or send one as `Authorization: Bearer KEY`; "
                "`coderai tokens create NAME --scope admin` makes one",
                code="missing_api_key",
            )
        require_no_foreign_page(named)
        if changes and not _is_from_own_page(named):
            raise _foreign("nothing shows that one of our own pages made this request")
        return found


def require_no_foreign_page(named: Named) -> None:
    """Refuse what another site's page made a browser send; a request that no page has made passes.

    Raises:
        Forbidden: another site's page made the request.
    """
    origin = named.get(b"origin")
    if origin is not None and not _is_own(origin, named):
        raise _foreign(f"the request comes from {origin[:200].decode('latin-1')!r}")


def _is_from_own_page(named: Named) -> bool:
    """Whether the browser vouches for it: by Origin, and where that is missing by what it sends instead.

    `same-site` is not enough: another port of this host is that, and SameSite cookies go there, too.
    """
    if b"origin" in named:
        return _is_own(named[b"origin"], named)
    if b"sec-fetch-site" in named:
        return named[b"sec-fetch-site"] == b"same-origin"
    return b"referer" in named and _is_own(named[b"referer"], named)


def _is_own(url: bytes, named: Named) -> bool:
    """Whether a URL is on the host, and port, that the client meant. Its scheme may be a TLS proxy's in front of us."""
    try:
        parts = urlsplit(url.decode("latin-1"))
    except ValueError:
        return False
    port = _PORTS.get(parts.scheme)
    host = named.get(b"host", b"").decode("latin-1").lower()
    # A browser never names the scheme's own port in an Origin; a proxy may do so in the Host.
    return port is not None and bool(host) and parts.netloc.lower() in (host, host.removesuffix(port))


def _foreign(what: str) -> Forbidden:
    return Forbidden(
        f"{what}: open the page at this server's own address; a proxy in front of it must pass on the Host header",
        code="foreign_origin",
    )
