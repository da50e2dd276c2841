"""Who asks: the bearer key of a request, and whether its scope opens the door."""

from collections.abc import Mapping

from infra.errors import Forbidden, NotAuthenticated
from infra.security import same_secret
from infra.tokens import Key, Scope, TokenTable
from infra.types import KeyName

INTERNAL = Key(KeyName("internal"), "admin")
"""The install's own processes and its owner's command line."""
_OPENS: dict[Scope, frozenset[Scope]] = {
    "user": frozenset({"user", "admin", "node"}),
    "node": frozenset({"node", "admin"}),
    "admin": frozenset({"admin"}),
}


class Auth:
    """Checks keys against the table in memory, and the install's own internal token."""

    def __init__(self, tokens: TokenTable, internal_token: str) -> None:
        self._tokens = tokens
        self._internal_token = internal_token

    def require(self, headers: Mapping[bytes, bytes], scope: Scope) -> Key:
        """The caller, by the request's headers (`headers_by_name`: of several keys none is taken).

        Raises:
            NotAuthenticated: no key, or one that is unknown or revoked.
            Forbidden: the key's scope does not reach.
        """
        header = headers.get(b"authorization", b"").decode("latin-1")
        kind, _space, secret = header.partition(" ")
        secret = secret.strip()
        if kind.lower() != "bearer" or not secret:
            raise NotAuthenticated(
                "You didn't provide an API key: send it as `Authorization: Bearer KEY`; "
                "`coderai tokens create NAME` makes one",
                code="missing_api_key",
            )
        key = self._tokens.find(secret)
        if key is None:
            if not same_secret(secret, self._internal_token):
                raise NotAuthenticated("Incorrect API key provided: it is unknown here, or was revoked")
            key = INTERNAL
        if key.scope not in _OPENS[scope]:
            raise Forbidden(f"this needs a key of scope {scope}; the key {key.name!r} has scope {key.scope}")
        return key
