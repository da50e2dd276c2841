"""Bringing the database's schema up to date, with Alembic and without an `alembic.ini`."""

from pathlib import Path

from sqlalchemy import Connection, text

from infra.database import Database, require_known, schema_revision
from infra.tables import HEAD

SCRIPTS = Path(__file__).parent / "migrations"
_ADVISORY_LOCK = 0x636F64657261  # "codera": one number that every install of ours takes on PostgreSQL


def migrate(database: Database) -> bool:
    """Bring the schema to `HEAD` in one transaction; True if there was anything to do.

    Processes that start at once on one database take turns: the later ones find the work done.

    Raises:
        DatabaseTooNew: a newer version has migrated it; it is untouched.
        DatabaseUnusable: it is corrupt or does not answer.
        DiskFull: no room; it is untouched.
    """
    with database.read() as session:
        before = schema_revision(session.connection())
    require_known(database, before)
    if before == HEAD:
        return False
    with database.connection() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _ADVISORY_LOCK})
        held = schema_revision(connection)
        require_known(database, held)
        if held == HEAD:
            return False
        _upgrade(connection)
    return True


def _upgrade(connection: Connection) -> None:
    # Alembic costs a quarter of a second and some megabytes: only a database that is behind pays for it.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
