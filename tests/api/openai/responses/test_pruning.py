"""The look for stored responses whose time has come."""

import asyncio
import contextlib
from pathlib import Path

from api.openai.responses import store
from api.openai.responses.pruning import keep_pruning
from infra.answer_pruning import prune
from infra.database import Database, open_database
from infra.errors import NotFound
from infra.migrate import migrate
from infra.sections import ResponsesSettings
from infra.types import KeyName, ResponseId


async def test_it_looks_again_and_again_whatever_the_database_says(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'coderai.db'}")
    watching = asyncio.create_task(keep_pruning(database, ResponsesSettings(keep_days=1e-9), every_s=0.01))
    await asyncio.sleep(0.05)  # no table yet
    migrate(database)
    whose = store.Whose(KeyName("ann"))
    store.keep(database, whose.key, {"id": "a", "output": []}, [])
    async with asyncio.timeout(5):
        while prune(database, 30, 2**30) == 0 and _there(database, whose):
            await asyncio.sleep(0.01)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    database.close()


def _there(database: Database, whose: store.Whose) -> bool:
    try:
        store.get(database, whose, ResponseId("a"))
    except NotFound:
        return False
    return True
