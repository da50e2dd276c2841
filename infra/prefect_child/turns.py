"""SQLite's one write lock, taken in turn and before anything is read.

Prefect begins most of its transactions deferred: they read first and write later. SQLite refuses such a write at once,
however long it may wait, where another writer has committed in between: "database is locked". What Prefect then does is
a matter of luck: its API answers 503, a state is not set, a service or a heartbeat of its own leaves a traceback in the
log. All writers of flow runs are in this process, so that they can line up instead.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Final

from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

PATIENCE_S: Final = 60.0
"""Seconds in the line, after which SQLite's own patience (Prefect's setting: as long again) decides: two transactions
that wait for each other must not do so for ever."""

_within: ContextVar[bool] = ContextVar("within", default=False)
"""Whether this task has its turn: what it begins within it must not wait for its end."""


def take_turns() -> None:
    """From now on every transaction of this process on SQLite has its turn (3.9.1, pinned)."""
    turn = asyncio.Lock()
    of_prefect = AioSqliteConfiguration.begin_transaction

    @asynccontextmanager
    async def begin_transaction(
        config: AioSqliteConfiguration, session: AsyncSession, with_for_update: bool = False
    ) -> AsyncIterator[AsyncSessionTransaction]:
        if _within.get():
            async with of_prefect(config, session, with_for_update) as transaction:
                yield transaction
            return
        ours = await _wait_for(turn)
        token = _within.set(True)
        try:
            async with session.begin() as transaction:
                await _take_lock(session)
                yield transaction
        finally:
            if ours:
                turn.release()
            _within.reset(token)

    AioSqliteConfiguration.begin_transaction = begin_transaction  # type: ignore[method-assign, assignment]


async def _wait_for(turn: asyncio.Lock) -> bool:
    """Whether it came in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            return await turn.acquire()
    return False


async def _take_lock(session: AsyncSession) -> None:
    """Begin now, with the lock. A session that is opened meanwhile, to read, is to begin in a way of its own."""
    token = SQLITE_BEGIN_MODE.set("IMMEDIATE")
    try:
        await session.connection()
    finally:
        SQLITE_BEGIN_MODE.reset(token)
