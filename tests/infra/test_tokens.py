"""Keys: made once, listed without secrets, revoked, looked up in memory."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from infra.database import Database, open_database
from infra.errors import Conflict, DatabaseUnusable, InvalidRequest, NotFound
from infra.migrate import migrate
from infra.security import hash_key
from infra.tokens import Key, TokenTable, create_key, ensure_first_key, list_keys, revoke_key
from infra.types import KeyName


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path}/coderai.db")
    migrate(opened)
    yield opened
    opened.close()


def test_a_key_is_known_after_the_next_look_and_unknown_after_its_end(database: Database) -> None:
    table = TokenTable(database)
    assert table.refresh()
    key = create_key(database, "anna", "user")
    assert table.find(key) is None
    assert table.refresh()
    assert table.find(key) == Key(KeyName("anna"), "user")
    assert table.named("anna") == (Key(KeyName("anna"), "user"), hash_key(key))
    assert table.find(key + "x") is None
    assert table.find("") is None
    assert not table.refresh()
    revoke_key(database, "anna")
    assert table.refresh()
    assert table.find(key) is None
    assert table.named("anna") is None
    assert len(table) == 0


def test_the_database_holds_no_key(database: Database, tmp_path: Path) -> None:
    key = create_key(database, "anna", "admin")
    secret = key.removeprefix("sk-coderai-").encode()
    assert all(secret not in path.read_bytes() for path in tmp_path.iterdir())
    info = list_keys(database)[0]
    assert key not in repr(info)
    assert (info.name, info.scope, info.revoked_at) == ("anna", "admin", None)
    assert abs((info.created_at - datetime.now(UTC)).total_seconds()) < 60


def test_the_first_key_is_made_once_and_never_again(database: Database) -> None:
    key = ensure_first_key(database)
    assert key is not None
    assert ensure_first_key(database) is None
    table = TokenTable(database)
    table.refresh()
    assert table.find(key) == Key(KeyName("first"), "admin")
    revoke_key(database, "first")
    assert ensure_first_key(database) is None  # a locked-out owner makes a key at the command line


def test_an_install_with_keys_gets_no_first_one(database: Database) -> None:
    create_key(database, "anna", "user")
    assert ensure_first_key(database) is None


@pytest.mark.parametrize("name", ["internal", "operator", "anonymous", "none"])
def test_a_name_that_owns_the_install_s_own_runs_is_refused(database: Database, name: str) -> None:
    with pytest.raises(InvalidRequest, match="another name"):
        create_key(database, name, "user")


def test_a_name_is_taken_for_ever(database: Database) -> None:
    create_key(database, "anna", "user")
    with pytest.raises(Conflict, match="exists: choose another"):
        create_key(database, "anna", "admin")
    revoke_key(database, "anna")
    with pytest.raises(Conflict, match="was revoked: choose another"):
        create_key(database, "anna", "admin")
    with pytest.raises(Conflict, match="already"):
        revoke_key(database, "anna")
    with pytest.raises(NotFound, match="coderai tokens list"):
        revoke_key(database, "berta")
    assert [info.name for info in list_keys(database)] == ["anna"]


@pytest.mark.parametrize("name", ["", " a", "a b", "a\n", "-a", "ä", "a" * 65, "a/b", "../a"])
def test_a_name_that_would_break_a_log_line_is_refused(database: Database, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        create_key(database, name, "user")
    assert caught.value.param == "name"


def test_a_scope_is_one_of_three(database: Database) -> None:
    with pytest.raises(InvalidRequest, match="admin, user, node") as caught:
        create_key(database, "anna", "root")
    assert caught.value.param == "scope"
    assert list_keys(database) == ()


def test_keys_survive_a_database_that_is_gone(database: Database) -> None:
    key = create_key(database, "anna", "user")
    table = TokenTable(database)
    table.refresh()
    with database.connection() as connection:
        connection.execute(text("ALTER TABLE revision RENAME TO elsewhere"))
    with pytest.raises(DatabaseUnusable):
        table.refresh()
    assert table.find(key) is not None
