"""An operator's pages, running."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.admin.operators import Operator, operator


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Operator]:
    """The site beside a fake of Prefect's server; the operator has logged in."""
    async with operator(tmp_path / "home") as running:
        await running.log_in()
        yield running
