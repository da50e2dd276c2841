"""API keys: made, listed and revoked in the database, looked up in memory."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sqlmodel import Session, col, select

from infra.database import Database, bump_revision, read_revision
from infra.errors import Conflict, InvalidRequest, NotFound
from infra.security import hash_key, new_key
from infra.tables import TokenRow
from infra.types import Frozen, KeyName

Scope = Literal["admin", "user", "node"]
"""What a key opens: `user` the API under /v1, `node` what a head needs of a node, `admin` everything."""
SCOPES: tuple[Scope, ...] = ("admin", "user", "node")
FIRST_KEY = KeyName("first")
"""The name of the key that the first start makes."""
_RESERVED = frozenset({"internal", "operator", "anonymous", "none"})
"""Names that runs and metrics use for callers without a key of their own: a key of that name would own their runs."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Key:
    """Who asks: what the front knows of a caller whose key is good."""

    name: KeyName
    scope: Scope


class KeyInfo(Frozen):
    """A key as lists show it: never its secret, which nobody keeps."""

    name: KeyName
    scope: Scope
    created_at: datetime
    revoked_at: datetime | None


def create_key(database: Database, name: str, scope: str) -> str:
    """Make a key and return it: the only time it is seen.

    Raises:
        InvalidRequest: the name or the scope cannot be used.
        Conflict: a key has, or had, this name.
    """
    checked_name, checked_scope = _checked_name(name), _checked_scope(scope)
    with database.write() as session:
        bump_revision(session, "tokens")
        return _insert_key(session, checked_name, checked_scope)


def ensure_first_key(database: Database) -> str | None:
    """Make an admin key called `first` if there has never been any key; return it once, None ever after."""
    with database.read() as session:
        if session.exec(select(TokenRow.id).limit(1)).first() is not None:
            return None
    with database.write() as session:
        bump_revision(session, "tokens")  # first: another process that starts now waits here, then finds our key
        if session.exec(select(TokenRow.id).limit(1)).first() is not None:
            return None
        return _insert_key(session, FIRST_KEY, "admin")


def revoke_key(database: Database, name: str) -> None:
    """End a key: it is refused as soon as the front has looked again, a second later. Its name stays taken.

    Raises:
        NotFound: no key has this name.
        Conflict: it is revoked already.
    """
    with database.write() as session:
        bump_revision(session, "tokens")
        row = session.exec(select(TokenRow).where(TokenRow.name == name)).first()
        if row is None:
            raise NotFound(f"no key is called {name!r}; see `coderai tokens list`", param="name")
        if row.revoked_at is not None:
            raise Conflict(f"the key {name!r} was revoked on {row.revoked_at:%Y-%m-%d} already", param="name")
        row.revoked_at = datetime.now(UTC)
        session.add(row)


def list_keys(database: Database) -> tuple[KeyInfo, ...]:
    """Every key that was ever made, the oldest first."""
    with database.read() as session:
        rows = session.exec(select(TokenRow).order_by(col(TokenRow.id))).all()
    return tuple(
        KeyInfo(
            name=KeyName(row.name),
            scope=_checked_scope(row.scope),
            created_at=row.created_at,
            revoked_at=row.revoked_at,
        )
        for row in rows
    )


class TokenTable:
    """The keys that are good now, in memory: what the front asks at every request.

    `refresh` reads the database and belongs in a thread; `find` is one hash and one look into a dict. The dicts
    are replaced whole, so the two never meet half-way.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._revision = -1
        self._keys: dict[str, Key] = {}
        self._named: dict[KeyName, tuple[Key, str]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def refresh(self) -> bool:
        """Look whether keys were made or revoked, and take them over if so; True if anything changed.

        Raises:
            DatabaseUnusable: it does not answer; the keys stay as they were.
        """
        with self._database.read() as session:
            revision = read_revision(session, "tokens")
            if revision == self._revision:
                return False
            rows = session.exec(select(TokenRow).where(col(TokenRow.revoked_at).is_(None))).all()
        self._keys = {row.sha256: Key(KeyName(row.name), _checked_scope(row.scope)) for row in rows}
        self._named = {key.name: (key, sha256) for sha256, key in self._keys.items()}
        self._revision = revision
        return True

    def find(self, key: str) -> Key | None:
        """Whose key this is; None if it is unknown or revoked.

        The dict is asked for a hash that the caller cannot steer, so its timing tells nothing about a stored key.
        """
        return self._keys.get(hash_key(key))

    def named(self, name: str) -> tuple[Key, str] | None:
        """The key of that name with its stored hash; None if there is none, or it is revoked."""
        return self._named.get(KeyName(name))


def _insert_key(session: Session, name: KeyName, scope: Scope) -> str:
    taken = session.exec(select(TokenRow).where(TokenRow.name == name)).first()
    if taken is not None:
        state = "exists" if taken.revoked_at is None else "existed and was revoked"
        raise Conflict(f"a key called {name!r} {state}: choose another name", param="name")
    key = new_key()
    session.add(TokenRow(name=name, scope=scope, sha256=hash_key(key), created_at=datetime.now(UTC)))
    return key


def _checked_name(name: str) -> KeyName:
    if name in _RESERVED:
        raise InvalidRequest(f"{name!r} is how the install signs its own runs: choose another name", param="name")
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            "a key's name has 1 to 64 letters, digits, dots, dashes or underscores and starts with a letter or digit",
            param="name",
        )
    return KeyName(name)


def _checked_scope(scope: str) -> Scope:
    if scope not in SCOPES:
        raise InvalidRequest(f"a key's scope is one of {', '.join(SCOPES)}, not {scope!r}", param="scope")
    return scope
