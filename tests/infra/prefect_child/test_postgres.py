"""The writer's suite on PostgreSQL, where that is installed."""

from collections.abc import Iterator

import pytest

from tests.infra.databases import postgres
from tests.infra.prefect_child.recording import Recording
from tests.ports import free_port
from tests.prefect_server import PrefectServer, running_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """A server of its own; skipped where PostgreSQL is not installed."""
    home = tmp_path_factory.mktemp("prefect-postgres") / "home"
    with postgres() as url:
        flows = url.replace("postgresql+psycopg://", "postgresql+asyncpg://")
        with running_server(home, free_port(), flows) as server:
            server.register()
            yield server


class TestOnPostgres(Recording):
    """The suite on that server."""

    @pytest.fixture
    def server(self, postgres_server: PrefectServer) -> PrefectServer:
        """The module's server."""
        return postgres_server
