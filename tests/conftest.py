"""What every test may use."""

import socket
from uuid import uuid4

import pytest


@pytest.fixture
def free_port() -> int:
    """A port of loopback that nothing listens on now; bind it soon."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the install of whoever runs it: `CODERAI_HOME` is a folder of its own, not made yet."""
    monkeypatch.setenv("CODERAI_HOME", str(tmp_path_factory.getbasetemp() / f"home-{uuid4().hex}"))
    monkeypatch.delenv("CODERAI_CONFIG", raising=False)
