"""What every test may use."""

import os
import tempfile
from uuid import uuid4

import pytest

from tests.job_lane import job_lane as job_lane
from tests.job_lane import quiet_lane as quiet_lane
from tests.ports import free_port
from tests.prefect_server import prefect_server as prefect_server


def pytest_configure(config: pytest.Config) -> None:
    """Prefect makes its folder when it is imported: here, not in the home of whoever runs the tests."""
    folder = tempfile.TemporaryDirectory(prefix="coderai-prefect-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    os.environ["PREFECT_HOME"] = folder.name  # noqa: TID251


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes are named by their place: two processes must collect the same names, and compressed bytes hold a clock."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture
def unused_tcp_port() -> int:
    """A port of loopback that nothing listens on; pytest-asyncio's own may be taken by a connection meanwhile."""
    return free_port()


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the install of whoever runs it: `CODERAI_HOME` is a folder of its own, not made yet."""
    monkeypatch.setenv("CODERAI_HOME", str(tmp_path_factory.getbasetemp() / f"home-{uuid4().hex}"))
    monkeypatch.delenv("CODERAI_CONFIG", raising=False)
