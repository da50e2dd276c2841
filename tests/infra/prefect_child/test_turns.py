"""Transactions on SQLite one after another: those that read first, those within others, those that fail."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from contextvars import Context, copy_context
from pathlib import Path

import pytest
import sqlalchemy as sa
from prefect.server.database import PrefectDBInterface
from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.exc import OperationalError

from infra.prefect_child import turns
from infra.prefect_child.turns import take_turns
from tests.infra.prefect_child.prefect_database import sqlite_db

__all__ = ["sqlite_db"]

pytestmark = pytest.mark.slow

_COUNT = sa.text("SELECT count(*) FROM flow")


@pytest.fixture
def turned(sqlite_db: PrefectDBInterface, monkeypatch: pytest.MonkeyPatch) -> PrefectDBInterface:
    """Prefect's tables, with turns."""
    monkeypatch.setattr(AioSqliteConfiguration, "begin_transaction", AioSqliteConfiguration.begin_transaction)
    take_turns()
    return sqlite_db


async def write(db: PrefectDBInterface, name: str, between: Callable[[], Awaitable[None]] | None = None) -> None:
    """What most of Prefect's transactions do: read, then write; `between` is awaited between the two."""
    async with db.session_context(begin_transaction=True) as session:
        await session.execute(_COUNT)
        if between is not None:
            await between()
        await session.execute(db.queries.insert(db.Flow).values(name=name, tags=[], labels={}))


async def names(db: PrefectDBInterface) -> set[str]:
    async with db.session_context() as session:
        return set(await session.scalars(sa.text("SELECT name FROM flow")))


def elsewhere() -> Context:
    """For a task that was not begun within the turn of this one."""
    context = copy_context()
    context.run(turns._within.set, False)
    return context


async def two_at_once(db: PrefectDBInterface, patience_s: float) -> None:
    """The second one writes while the first one has read and not written."""
    read, written = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        read.set()
        await asyncio.wait([asyncio.ensure_future(written.wait())], timeout=patience_s)

    async def second() -> None:
        await read.wait()
        await write(db, "second")
        written.set()

    await asyncio.gather(write(db, "first", wait), second())


async def test_prefect_alone_refuses_who_has_read_before_another_wrote(sqlite_db: PrefectDBInterface) -> None:
    """What turns are for: if this fails, Prefect has mended it, and they may go."""
    with pytest.raises(OperationalError, match="database is locked"):
        await two_at_once(sqlite_db, 30)


async def test_both_write_one_after_the_other(turned: PrefectDBInterface) -> None:
    await two_at_once(turned, 0.3)
    assert await names(turned) == {"first", "second"}


async def test_many_come_in_the_order_of_their_coming(turned: PrefectDBInterface) -> None:
    order: list[str] = []

    async def one(name: str) -> None:
        async def note() -> None:
            order.append(name)

        await write(turned, name, note)

    wanted = [f"flow-{number}" for number in range(30)]
    await asyncio.gather(*(one(name) for name in wanted))
    assert order == wanted


async def test_what_is_begun_within_a_turn_does_not_wait_for_its_end(turned: PrefectDBInterface) -> None:
    async def within() -> None:
        assert await names(turned) == set()
        async with turned.session_context(begin_transaction=True) as session:
            await session.execute(_COUNT)

    async with asyncio.timeout(5):
        await write(turned, "outer", within)
    assert await names(turned) == {"outer"}


async def test_a_failure_changes_nothing_and_passes_the_turn_on(turned: PrefectDBInterface) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await write(turned, "never", fail)
    async with asyncio.timeout(5):
        await write(turned, "after")
    assert await names(turned) == {"after"}


async def test_who_leaves_the_line_holds_nobody_up(turned: PrefectDBInterface) -> None:
    async def leave() -> None:
        waiting = asyncio.create_task(write(turned, "never"), context=elsewhere())
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait([waiting])

    await write(turned, "first", leave)
    async with asyncio.timeout(5):
        await write(turned, "second")
    assert await names(turned) == {"first", "second"}


async def test_a_writer_of_another_process_is_waited_for(turned: PrefectDBInterface, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "flows.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(write(turned, "later"))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        other.execute("COMMIT")
        await asyncio.wait_for(waiting, 5)
    assert await names(turned) == {"later"}


async def test_two_that_wait_for_each_other_do_not_do_so_for_ever(
    turned: PrefectDBInterface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.1)

    others: list[asyncio.Task[None]] = []

    async def wait() -> None:
        others.append(asyncio.create_task(write(turned, "second"), context=elsewhere()))
        await asyncio.wait(others, timeout=0.5)

    async with asyncio.timeout(10):
        await write(turned, "first", wait)
        await others[0]
    assert await names(turned) == {"first", "second"}
