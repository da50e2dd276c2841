"""What the tests of cards share."""

from pathlib import Path

import pytest

from tests.infra.hardware.fakes import FakeSys


@pytest.fixture
def sys(tmp_path: Path) -> FakeSys:
    """An empty /sys to add devices to."""
    return FakeSys(tmp_path / "sys")
