"""What several modules here need once a session."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of Prefect's in a file, to be copied (`prefect_database.sqlite_db`)."""
    from tests.infra.prefect_child.prefect_database import migrate  # imports Prefect: seconds, for those who need it

    home = tmp_path_factory.mktemp("prefect")
    migrate(f"sqlite+aiosqlite:///{home / 'flows.db'}", home)
    with closing(sqlite3.connect(home / "flows.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return home / "flows.db"
