"""The threads of the files' work, and the removal of what has expired."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.file_desk import FileDesk
from infra.database import open_database
from infra.file_rows import NewFile
from infra.migrate import migrate
from infra.settings import load_settings
from infra.types import KeyName
from tests.api.conftest import StartFront


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[FileDesk]:
    settings = load_settings(home=tmp_path)
    database = open_database(settings.sqlalchemy_url)
    migrate(database)
    made = FileDesk(settings, database)
    yield made
    made.close()
    database.close()


async def test_cancelled_work_is_over_before_its_caller_goes_on(desk: FileDesk) -> None:
    go, over = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(10)
        over.set()

    caller = asyncio.create_task(desk.run(work))
    await asyncio.sleep(0.01)
    caller.cancel()
    await asyncio.sleep(0.01)
    assert not caller.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert over.is_set()


async def test_what_has_expired_and_what_was_half_written_goes_at_the_start(desk: FileDesk) -> None:
    incoming = desk.files.begin(KeyName("me"), 10)
    incoming.write(b"x")
    desk.files.add(incoming, NewFile(KeyName("me"), "a", "batch", lasts_s=-1))
    keeping = asyncio.create_task(desk.keep())
    while any(path.is_file() for path in desk.files.store.root.rglob("*")):
        await asyncio.sleep(0.01)
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping


async def test_a_front_keeps_its_files_over_a_restart(start_front: StartFront) -> None:
    front = await start_front()
    assert front.services.files.files.store.root == front.settings.at("files")
