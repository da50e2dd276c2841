"""What the composition root decides itself; that all parts fit is in every test with a front."""

import asyncio
from pathlib import Path

import pytest

from api.accounting import Accounting
from api.compose import open_front
from infra.database import open_database
from infra.errors import DatabaseUnusable
from infra.migrate import migrate
from infra.settings import load_settings
from tests.fakes import FakeChildren


async def test_what_runs_beside_the_requests_survives_its_failures_and_ends_with_the_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = asyncio.Event()

    async def fail(_self: Accounting) -> None:
        failed.set()
        raise ZeroDivisionError

    monkeypatch.setattr(Accounting, "keep_flushing", fail)
    settings = load_settings(home=tmp_path, models={"packaged": False})
    database = open_database(settings.sqlalchemy_url)
    migrate(database)
    database.close()
    before, children = asyncio.all_tasks(), FakeChildren()
    async with open_front(settings, children, "token"):
        await failed.wait()
        await asyncio.sleep(0)
        running = {task.get_name() for task in asyncio.all_tasks() - before}
    await children.close()
    assert len([name for name in running if name.startswith("the ")]) == 14
    assert "the writing of usage" in running
    assert "the writing of usage failed" in caplog.text
    assert asyncio.all_tasks() == before


async def test_a_front_on_a_database_that_nobody_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusable, match="coderai serve"):
        async with open_front(load_settings(home=tmp_path), FakeChildren(), "token"):
            pass
