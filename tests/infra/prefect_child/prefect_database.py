"""Prefect's tables without a server: in a SQLite file, and in a PostgreSQL of our own."""

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from prefect.server.database import PrefectDBInterface
from prefect.server.database.configurations import AioSqliteConfiguration, AsyncPostgresConfiguration
from prefect.server.database.orm_models import AioSqliteORMConfiguration, AsyncPostgresORMConfiguration
from prefect.server.database.query_components import AioSqliteQueryComponents, AsyncPostgresQueryComponents

from infra.settings import inherited_environment
from tests.infra.databases import postgres

_MIGRATE = """
import asyncio
from prefect.server.database import provide_database_interface
asyncio.run(provide_database_interface().create_db())
"""


def migrate(url: str, home: Path) -> None:
    """Make Prefect's tables, as its server does at a start; takes seconds. In a process of its own: its settings are
    the process's."""
    variables = {"PREFECT_HOME": str(home), "PREFECT_SERVER_DATABASE_CONNECTION_URL": url}
    subprocess.run([sys.executable, "-c", _MIGRATE], env=inherited_environment() | variables, check=True)


def interface(path: Path) -> PrefectDBInterface:
    """Prefect's way to the SQLite file at `path`."""
    config = AioSqliteConfiguration(connection_url=f"sqlite+aiosqlite:///{path}")
    return PrefectDBInterface(
        database_config=config, query_components=AioSqliteQueryComponents(), orm=AioSqliteORMConfiguration()
    )


@pytest_asyncio.fixture
async def sqlite_db(migrated: Path, tmp_path: Path) -> AsyncIterator[PrefectDBInterface]:
    """Empty tables in `<tmp_path>/flows.db`."""
    shutil.copy(migrated, tmp_path / "flows.db")
    db = interface(tmp_path / "flows.db")
    yield db
    await (await db.engine()).dispose()


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Empty tables in a server."""
    with postgres() as url:
        ours = url.replace("+psycopg", "+asyncpg")
        migrate(ours, tmp_path_factory.mktemp("prefect-postgres"))
        yield ours


@pytest_asyncio.fixture
async def postgres_db(postgres_url: str) -> AsyncIterator[PrefectDBInterface]:
    """The tables in the server; what a test leaves there, the next one finds."""
    config = AsyncPostgresConfiguration(connection_url=postgres_url)
    db = PrefectDBInterface(
        database_config=config, query_components=AsyncPostgresQueryComponents(), orm=AsyncPostgresORMConfiguration()
    )
    yield db
    await (await db.engine()).dispose()
