"""The install's database: SQLite in one private file, or PostgreSQL by URL. Synchronous: call it in a thread.

It holds what changes while running; the hot path reads snapshots in memory. Bringing the schema up to date is in
`infra/migrate.py`, apart, because the process that answers clients never needs Alembic.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlmodel import Session, col, select, update

from infra.errors import DatabaseTooNew, DatabaseUnusable, DiskFull, InvalidRequest, NotInstalled, SettingsInvalid
from infra.files import full_disk_named, make_private_folder
from infra.tables import HEAD, REVISIONS, RevisionRow

Topic = Literal["tokens", "models", "files"]
"""What a snapshot in memory is made of; each has a counter in the table `revision`."""

BUSY_TIMEOUT_S = 30.0
"""How long a write waits for another process's write."""
_WRITE = "coderai_write"


@dataclass(frozen=True, slots=True)
class Database:
    """An open database. `name` is its URL without the password, for messages; `file` is SQLite's file, else None."""

    engine: Engine
    name: str
    file: Path | None

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session for reading, all of it at one moment on SQLite; what it changes is dropped.

        Raises:
            DatabaseUnusable: it does not answer, or is corrupt.
            InvalidRequest: PostgreSQL takes no such value, a text with a NUL in it for one.
        """
        with _named_errors(self.name), Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session whose changes are committed together at its end, or not at all when the body raises.

        On SQLite it has the only right to write from its beginning, so what it reads cannot change under it.

        Raises:
            DiskFull: no room; nothing was changed.
            DatabaseUnusable: it does not answer, is corrupt, or another process held it too long.
            InvalidRequest: as `read` does.
        """
        writer = self.engine.execution_options(**{_WRITE: True})
        with _named_errors(self.name), Session(writer, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection in a transaction that may write: for the migrations, which need no session.

        Raises:
            DiskFull, DatabaseUnusable: as `write` does.
        """
        with _named_errors(self.name), self.engine.execution_options(**{_WRITE: True}).begin() as connection:
            yield connection

    def close(self) -> None:
        """Close every connection. An object that is closed opens new ones when used again."""
        self.engine.dispose()


def open_database(url: str) -> Database:
    """Open the database at `url`; SQLite's file is created when missing, with mode 0600. No table is made here.

    Raises:
        SettingsInvalid: the URL cannot be read, or is of another kind than SQLite's file or PostgreSQL.
        NotInstalled: the driver is missing.
        DatabaseUnusable: it does not answer, or the file is no database.
        DiskFull: no room for the file.
    """
    parsed = _parse(url)
    name = parsed.render_as_string(hide_password=True)
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(parsed, name)
    try:
        engine = create_engine(parsed, pool_pre_ping=True, hide_parameters=True)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise NotInstalled(f"{name} needs a driver that is missing: pip install 'coderai[postgres]'") from error
    with _named_errors(name), engine.connect():
        return Database(engine, name, None)


def schema_revision(connection: Connection) -> str | None:
    """The revision that the database is stamped with; None where no table is ours yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def require_known(database: Database, revision: str | None) -> None:
    """Refuse a database that a newer version has migrated; nothing in it is touched.

    Raises:
        DatabaseTooNew: this version does not know `revision`.
    """
    if revision is not None and revision not in REVISIONS:
        raise DatabaseTooNew(
            f"the database {database.name} is of revision {revision}, which this version does not know (it goes up to "
            f"{HEAD}): start the newer version of CoderAI that wrote it, or set CODERAI_DATABASE_URL to another one"
        )


def require_current(database: Database) -> None:
    """Make sure that the schema is the one this version works with, without Alembic.

    Raises:
        DatabaseTooNew: a newer version has migrated it.
        DatabaseUnusable: it has not been brought up to date yet.
    """
    with _named_errors(database.name), database.engine.connect() as connection:
        revision = schema_revision(connection)
    require_known(database, revision)
    if revision != HEAD:
        raise DatabaseUnusable(f"the database {database.name} is not up to date: start `coderai serve` once")


def read_revision(session: Session, topic: Topic) -> int:
    """How often the rows of `topic` have changed. Read it before the rows: then a snapshot is never too new for it."""
    return session.exec(select(RevisionRow.number).where(RevisionRow.topic == topic)).one()


def bump_revision(session: Session, topic: Topic) -> None:
    """Count a change of `topic` in the session's transaction. Done first, it keeps other writers out till the end."""
    session.exec(update(RevisionRow).where(col(RevisionRow.topic) == topic).values(number=col(RevisionRow.number) + 1))


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        # The text may hold a password: it is not repeated.
        raise SettingsInvalid("database_url is not a SQLAlchemy URL", param="database_url") from error
    kind = parsed.get_backend_name()
    memory = kind == "sqlite" and (parsed.database in (None, "", ":memory:") or parsed.query.get("uri"))
    if kind not in ("sqlite", "postgresql") or memory:
        raise SettingsInvalid(
            "database_url must name a SQLite file (sqlite:////var/lib/coderai/coderai.db) or a PostgreSQL database "
            "(postgresql+psycopg://user@host/coderai)",
            param="database_url",
        )
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername == "postgresql" else parsed


def _open_sqlite(url: URL, name: str) -> Database:
    file = Path(url.database or "").absolute()
    try:
        make_private_folder(file.parent)
        _create_private(file)
    except OSError as error:
        raise DatabaseUnusable(f"the database {file} cannot be opened: {error.strerror}") from error
    engine = create_engine(url.set(database=str(file)), connect_args={"timeout": BUSY_TIMEOUT_S}, hide_parameters=True)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    with _named_errors(name), engine.connect() as connection:
        _use_wal(connection)
        connection.execute(text("SELECT count(*) FROM sqlite_master"))
    return Database(engine, name, file)


def _create_private(file: Path) -> None:
    """Never opens a file that exists: closing it would drop the locks that SQLite holds on it in this process."""
    if not file.exists():
        try:
            with full_disk_named(file):
                os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return  # another process made it just now
    if file.stat().st_mode & 0o077:
        file.chmod(0o600)


def _prepare_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says, DDL included
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    # A reader that turns into a writer would fail at once when another process wrote meanwhile; IMMEDIATE waits first.
    writes = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _use_wal(connection: Connection) -> None:
    """Let readers and a writer work at once. The file keeps the mode, so only the first start changes anything."""
    cursor = connection.connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode = WAL")
    finally:
        cursor.close()


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        _raise_named(error, name)


def _raise_named(error: DBAPIError | sqlite3.Error, name: str) -> NoReturn:
    """Give the errors that a person can mend our own names; a violated constraint stays what it is."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    words = str(cause).strip()
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # without the detail in the upper bits
    sqlstate = getattr(cause, "sqlstate", None)
    if code == sqlite3.SQLITE_FULL or sqlstate == "53100":
        raise DiskFull(f"the database {name} could not be written: {words}. Make room and try again") from error
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        raise DatabaseUnusable(
            f"the database {name} is damaged or is no database ({words}): move the file away and start again, "
            "or put a copy of yours back"
        ) from error
    if isinstance(error, DataError):
        raise InvalidRequest(f"a value of this request cannot be stored or looked up: {words}") from error
    if type(error).__name__ == "OperationalError":
        raise DatabaseUnusable(f"the database {name} does not work: {words}") from error
    raise error
