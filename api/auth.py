"""Who asks: the bearer key of a request, and whether its scope opens the door."""

import hashlib
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
        secret = _bearer(headers)
        if not secret:
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
        return _reaching(key, scope)

    def admin(self, secret: str) -> Key:
        """Whose admin key this is. The internal token is none: it is no person's.

        Raises:
            NotAuthenticated: it is unknown or revoked.
            Forbidden: it is no admin's.
        """
        key = self._tokens.find(secret)
        if key is None:
            raise NotAuthenticated("Incorrect API key provided: it is unknown here, or was revoked")
        return _reaching(key, "admin")

    def is_internal(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether the caller is one of the install's own processes: an admin's key is not enough."""
        return same_secret(_bearer(headers), self._internal_token)

    def fingerprint(self, name: str) -> str | None:
        """What tells an admin key from another of its name, without giving its stored hash away; None once revoked."""
        found = self._tokens.named(name)
        if found is None or found[0].scope != "admin":
            return None
        return hashlib.sha256(b"fingerprint:" + found[1].encode()).hexdigest()[:32]


def _reaching(key: Key, scope: Scope) -> Key:
    if key.scope not in _OPENS[scope]:
        raise Forbidden(f"this needs a key of scope {scope}; the key {key.name!r} has scope {key.scope}")
    return key


def _bearer(headers: Mapping[bytes, bytes]) -> str:
    """The key of the Authorization header; empty where there is none."""
    kind, _space, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""
