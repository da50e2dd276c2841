"""Who gets in: scopes, the internal token, and headers that are odd."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.auth import INTERNAL, Auth
from infra.database import open_database
from infra.errors import Forbidden, NotAuthenticated
from infra.migrate import migrate
from infra.tokens import SCOPES, Scope, TokenTable, create_key, revoke_key

TOKEN = "5eed" * 16


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Auth, dict[str, str]]]:
    """The front's door, and a key of each scope; `gone` was revoked."""
    folder: Path = tmp_path_factory.mktemp("auth")
    database = open_database(f"sqlite:///{folder / 'coderai.db'}")
    migrate(database)
    made: dict[str, str] = {scope: create_key(database, scope, scope) for scope in SCOPES}
    made["gone"] = create_key(database, "gone", "admin")
    revoke_key(database, "gone")
    table = TokenTable(database)
    table.refresh()
    yield Auth(table, TOKEN), made
    database.close()


def bearer(key: str) -> dict[bytes, bytes]:
    return {b"host": b"x", b"authorization": f"Bearer {key}".encode()}


@pytest.mark.parametrize(
    ("key", "scope", "opens"),
    [
        ("user", "user", True),
        ("user", "node", False),
        ("user", "admin", False),
        ("node", "user", True),
        ("node", "node", True),
        ("node", "admin", False),
        ("admin", "user", True),
        ("admin", "node", True),
        ("admin", "admin", True),
    ],
)
def test_scopes(keys: tuple[Auth, dict[str, str]], key: str, scope: Scope, opens: bool) -> None:
    auth, made = keys
    if opens:
        assert auth.require(bearer(made[key]), scope).name == key
    else:
        with pytest.raises(Forbidden, match=f"needs a key of scope {scope}; the key '{key}' has scope {key}"):
            auth.require(bearer(made[key]), scope)


@pytest.mark.parametrize("scope", SCOPES)
def test_the_internal_token_opens_everything(keys: tuple[Auth, dict[str, str]], scope: Scope) -> None:
    assert keys[0].require(bearer(TOKEN), scope) == INTERNAL


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer  \t ",
        b"Basic dXNlcjpwYXNz",
        b"{key}",
        b"Token {key}",
        b"Bearer{key}",
    ],
)
def test_no_key_is_told_how_to_send_one(keys: tuple[Auth, dict[str, str]], header: bytes | None) -> None:
    auth, made = keys
    headers = {} if header is None else {b"authorization": header.replace(b"{key}", made["admin"].encode())}
    with pytest.raises(NotAuthenticated, match="Authorization: Bearer KEY") as caught:
        auth.require(headers, "user")
    assert caught.value.code == "missing_api_key"


@pytest.mark.parametrize(
    "header",
    [
        b"Bearer wrong",
        b"Bearer \xff\xfe\x80",
        b"Bearer {key}x",
        b"Bearer x{key}",
        b"Bearer {key} {key}",
        b"Bearer {key},",
        b"Bearer " + b"x" * 100_000,
        b"Bearer " + TOKEN[:-1].encode(),
        b"Bearer " + TOKEN.upper().encode() + b"A",
    ],
)
def test_a_wrong_key_is_refused_and_not_repeated(keys: tuple[Auth, dict[str, str]], header: bytes) -> None:
    auth, made = keys
    sent = header.replace(b"{key}", made["admin"].encode())
    with pytest.raises(NotAuthenticated) as caught:
        auth.require({b"authorization": sent}, "user")
    assert caught.value.code == "invalid_api_key"
    assert made["admin"] not in str(caught.value)


@pytest.mark.parametrize("header", ["bearer {key}", "BEARER {key}", "Bearer   {key}", "Bearer {key}  "])
def test_case_and_spaces_do_not_matter(keys: tuple[Auth, dict[str, str]], header: str) -> None:
    auth, made = keys
    sent = header.format(key=made["user"]).encode()
    assert auth.require({b"authorization": sent}, "user").name == "user"


def test_a_revoked_key_opens_nothing(keys: tuple[Auth, dict[str, str]]) -> None:
    auth, made = keys
    with pytest.raises(NotAuthenticated, match="or was revoked"):
        auth.require(bearer(made["gone"]), "user")


def test_only_the_internal_token_is_internal(keys: tuple[Auth, dict[str, str]]) -> None:
    auth, made = keys
    assert auth.is_internal(bearer(TOKEN))
    assert not any(auth.is_internal(bearer(key)) for key in (*made.values(), "", TOKEN + "x", TOKEN[:-1]))
    assert not auth.is_internal({})
    assert not auth.is_internal({b"authorization": TOKEN.encode()})
    assert not Auth(auth._tokens, "").is_internal(bearer(""))


def test_without_an_internal_token_an_empty_key_opens_nothing(keys: tuple[Auth, dict[str, str]]) -> None:
    auth, _made = keys
    closed = Auth(auth._tokens, "")
    with pytest.raises(NotAuthenticated):
        closed.require(bearer(""), "user")


def test_an_admin_is_a_person_with_an_admin_key(keys: tuple[Auth, dict[str, str]]) -> None:
    auth, made = keys
    assert auth.admin(made["admin"]).name == "admin"
    for scope in ("user", "node"):
        with pytest.raises(Forbidden):
            auth.admin(made[scope])
    for unknown in (TOKEN, made["gone"], "", "\ud800"):
        with pytest.raises(NotAuthenticated):
            auth.admin(unknown)


def test_only_a_good_admin_key_has_a_fingerprint(keys: tuple[Auth, dict[str, str]]) -> None:
    auth, _made = keys
    print_of_admin = auth.fingerprint("admin")
    assert print_of_admin is not None
    assert len(print_of_admin) == 32
    assert [auth.fingerprint(name) for name in ("user", "node", "gone", "internal", "x")] == [None] * 5
