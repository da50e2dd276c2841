"""Opening, migrating and refusing databases; two real processes at once."""

import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, StatementError
from sqlmodel import SQLModel, delete, select

from infra.database import Database, bump_revision, open_database, read_revision, require_current, schema_revision
from infra.errors import DatabaseTooNew, DatabaseUnusable, DiskFull, InvalidRequest, SettingsInvalid
from infra.migrate import SCRIPTS, migrate
from infra.tables import HEAD, REVISIONS, TokenRow
from infra.tokens import ensure_first_key
from tests.infra.databases import postgres


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/home/coderai.db"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    opened = open_database(url)
    migrate(opened)
    yield opened
    opened.close()


def token(name: str) -> TokenRow:
    return TokenRow(name=name, scope="user", sha256=name, created_at=datetime.now(UTC))


def test_a_new_database_is_private_and_complete_within_a_second(url: str, tmp_path: Path) -> None:
    started = time.process_time()
    database = open_database(url)
    assert migrate(database)
    assert time.process_time() - started < 1  # measured: 0.2 s
    require_current(database)
    with database.write() as session:
        session.add(token("a"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "home").iterdir()}
    assert modes["coderai.db"] == 0o600
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    started = time.process_time()
    assert not migrate(database)
    assert time.process_time() - started < 0.5
    database.close()


def test_an_existing_file_is_closed_to_others(tmp_path: Path) -> None:
    file = tmp_path / "wide.db"
    file.touch(mode=0o644)
    open_database(f"sqlite:///{file}").close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_sqlite_is_set_up_for_several_processes(database: Database) -> None:
    with database.read() as session:
        connection = session.connection()
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000


def test_the_migrations_make_exactly_the_tables(database: Database) -> None:
    with database.connection() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, SQLModel.metadata) == []


def test_the_revisions_of_the_code_are_those_of_the_scripts() -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [HEAD]
    assert {script.revision for script in scripts.walk_revisions()} == REVISIONS


def test_opening_does_not_load_alembic() -> None:
    code = "import sys, infra.database, infra.tokens, infra.usage; sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


_START = """
import sys, time
from infra.database import open_database, read_revision
from infra.migrate import migrate
from infra.tokens import ensure_first_key
print("ready", flush=True)
sys.stdin.readline()
database = open_database(sys.argv[1])
migrated = migrate(database)
key = ensure_first_key(database)
with database.read() as session:
    read_revision(session, "tokens")
print(migrated, key is not None, flush=True)
"""


def start_at_once(url: str, count: int) -> list[str]:
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _START, url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(count)
    ]  # fmt: skip
    answers: list[str] = []
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        answers.append(child.communicate(timeout=60)[0].strip())
        assert child.returncode == 0
    return answers


def test_processes_that_start_at_once_migrate_once_and_make_one_first_key(url: str) -> None:
    answers = start_at_once(url, 4)
    assert sorted(answer.split()[0] for answer in answers) == ["False", "False", "False", "True"]
    assert sorted(answer.split()[1] for answer in answers) == ["False", "False", "False", "True"]


def test_the_same_on_postgresql(postgres_url: str) -> None:
    answers = start_at_once(postgres_url, 3)
    assert sorted(answer.split()[0] for answer in answers) == ["False", "False", "True"]
    assert sorted(answer.split()[1] for answer in answers) == ["False", "False", "True"]
    database = open_database(postgres_url)
    with database.connection() as connection:
        assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []
    with database.read() as session:
        row = session.exec(select(TokenRow)).one()
    assert row.created_at.utcoffset() == timedelta(0)
    database.close()


def test_a_text_that_postgresql_cannot_hold_is_its_sender_s_fault(postgres_url: str) -> None:
    database = open_database(postgres_url)
    migrate(database)
    with pytest.raises(InvalidRequest, match="NUL"), database.read() as session:
        session.get(TokenRow, "a\0b")
    with pytest.raises(InvalidRequest, match="NUL"), database.write() as session:
        session.add(token("a\0b"))
    database.close()


def test_a_first_key_on_postgresql_waits_for_another_process_that_makes_one(postgres_url: str) -> None:
    database = open_database(postgres_url)
    migrate(database)
    with database.write() as session:
        session.exec(delete(TokenRow))
    with ThreadPoolExecutor(1) as pool:
        with database.write() as other:
            bump_revision(other, "tokens")
            second = pool.submit(ensure_first_key, database)
            with pytest.raises(TimeoutError):
                second.result(timeout=0.5)
            other.add(token("first"))
        assert second.result(timeout=10) is None
    database.close()


def test_a_database_from_a_newer_version_is_refused_and_left_alone(url: str, tmp_path: Path) -> None:
    database = open_database(url)
    migrate(database)
    with database.connection() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    before = (tmp_path / "home" / "coderai.db").read_bytes()
    database = open_database(url)
    for refused in (migrate, require_current):
        with pytest.raises(DatabaseTooNew, match=r"revision 9999.*start the newer version"):
            refused(database)
    database.close()
    assert (tmp_path / "home" / "coderai.db").read_bytes() == before


def test_a_database_that_nobody_migrated_is_named(url: str) -> None:
    database = open_database(url)
    with pytest.raises(DatabaseUnusable, match="start `coderai serve` once"):
        require_current(database)
    database.close()


def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "coderai.db"
    file.write_bytes(b"certainly not a database " * 400)
    with pytest.raises(DatabaseUnusable, match=r"coderai.db is damaged or is no database .*move the file away"):
        open_database(f"sqlite:///{file}")
    assert file.read_bytes() == b"certainly not a database " * 400


def test_a_damaged_database_is_named(url: str, tmp_path: Path) -> None:
    database = open_database(url)
    migrate(database)
    database.close()
    file = tmp_path / "home" / "coderai.db"
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(DatabaseUnusable, match="damaged"):
        migrate(open_database(url))


def test_a_table_of_somebody_else_stops_the_migration_whole(url: str, tmp_path: Path) -> None:
    open_database(url).close()
    with sqlite3.connect(tmp_path / "home" / "coderai.db") as other:
        other.execute("CREATE TABLE usage (x)")
    other.close()
    database = open_database(url)
    with pytest.raises(DatabaseUnusable, match="already exists"):
        migrate(database)
    with database.read() as session:
        tables = session.connection().execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars()
        assert list(tables) == ["usage"]
    database.close()


@pytest.mark.parametrize("bad", ["", "no url", "sqlite://", "sqlite:///:memory:", "mysql://u:hush@host/x"])
def test_a_url_of_another_kind_is_refused_without_repeating_it(bad: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        open_database(bad)
    assert caught.value.param == "database_url"
    assert "hush" not in caught.value.message


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(DatabaseUnusable, match=r"127\.0\.0\.1") as caught:
        open_database("postgresql://user:hush@127.0.0.1:9/x")
    assert "hush" not in caught.value.message


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseUnusable, match="cannot be opened"):
        open_database(f"sqlite:///{tmp_path}/file/coderai.db")


def test_a_write_is_whole_or_nothing(database: Database) -> None:
    def spoiled() -> None:
        with database.write() as session:
            bump_revision(session, "tokens")
            session.add(token("a"))
            session.flush()
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        spoiled()
    with database.read() as session:
        assert session.exec(select(TokenRow)).all() == []
        assert read_revision(session, "tokens") == 0


def test_a_violated_constraint_stays_what_it_is(database: Database) -> None:
    with pytest.raises(IntegrityError), database.write() as session:
        session.add_all([token("a"), token("a")])


def test_what_a_reader_changes_is_dropped(database: Database) -> None:
    with database.read() as session:
        session.add(token("a"))
        session.flush()
    with database.read() as session:
        assert session.exec(select(TokenRow)).all() == []


def test_a_full_database_is_named(database: Database) -> None:
    def grow() -> None:
        with database.write() as session:
            connection = session.connection()
            pages = connection.execute(text("PRAGMA page_count")).scalar()
            connection.execute(text(f"PRAGMA max_page_count = {pages}"))
            session.add_all([TokenRow(name=f"{n}", scope="user", sha256=f"{n}", created_at=NOW) for n in range(2000)])

    with pytest.raises(DiskFull, match="Make room"):
        grow()
    with database.read() as session:
        assert session.exec(select(TokenRow)).all() == []


NOW = datetime(2026, 11, 29, 23, 30, tzinfo=timezone(timedelta(hours=-3)))


def test_moments_come_back_in_utc(database: Database) -> None:
    with database.write() as session:
        session.add(TokenRow(name="a", scope="user", sha256="a", created_at=NOW))
    with database.read() as session:
        row = session.exec(select(TokenRow)).one()
    assert row.created_at == NOW
    assert row.created_at.tzinfo is UTC
    naive = TokenRow(name="b", scope="user", sha256="b", created_at=NOW.replace(tzinfo=None))
    with pytest.raises(StatementError, match="time zone"), database.write() as session:
        session.add(naive)


def test_writers_take_turns(database: Database, url: str) -> None:
    other = open_database(url)
    with other.read() as reading:
        assert read_revision(reading, "models") == 0
        with database.write() as session:
            bump_revision(session, "models")
        assert read_revision(reading, "models") == 0  # one moment
    with other.read() as reading:
        assert read_revision(reading, "models") == 1
        assert schema_revision(reading.connection()) == HEAD
    other.close()
