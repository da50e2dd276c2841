"""Which stored answers go: responses and chat completions share one age and one allowance. Everything blocks."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, delete, func, or_, select

from infra.database import Database
from infra.response_rows import UNDER_WAY
from infra.tables import ChatRow, ResponseRow

_AT_ONCE: Final = 200


class _Old(NamedTuple):
    """One that may go, in the order of its last use."""

    used_at: datetime
    id: str
    size_bytes: int


def prune(database: Database, keep_days: float, max_bytes: int) -> int:
    """Delete what was not used for `keep_days`, and of the rest the longest unused until it fits; how many went. A
    response that is still being made stays.

    Raises:
        DiskFull, DatabaseUnusable: nothing was deleted.
    """
    oldest = datetime.now(UTC) - timedelta(days=keep_days)
    with database.write() as session:
        gone = session.exec(delete(ResponseRow).where(_made(), col(ResponseRow.used_at) < oldest)).rowcount
        gone += session.exec(delete(ChatRow).where(col(ChatRow.created_at) < oldest)).rowcount
        over = _total_bytes(session) - max_bytes
        while over > 0:
            doomed: list[str] = []
            for old in islice(merge(_responses(session), _chats(session)), _AT_ONCE):
                if over > 0:
                    doomed.append(old.id)
                    over -= old.size_bytes
            if not doomed:
                break
            session.exec(delete(ResponseRow).where(col(ResponseRow.id).in_(doomed)))
            session.exec(delete(ChatRow).where(col(ChatRow.id).in_(doomed)))
            gone += len(doomed)
    return gone


def _total_bytes(session: Session) -> int:
    responses = session.exec(select(func.sum(ResponseRow.size_bytes))).one() or 0
    return responses + (session.exec(select(func.sum(ChatRow.size_bytes))).one() or 0)


def _responses(session: Session) -> Iterator[_Old]:
    query = select(ResponseRow.used_at, ResponseRow.id, ResponseRow.size_bytes).where(_made())
    return (_Old(*row) for row in session.exec(query.order_by(col(ResponseRow.used_at)).limit(_AT_ONCE)))


def _chats(session: Session) -> Iterator[_Old]:
    query = select(ChatRow.created_at, ChatRow.id, ChatRow.size_bytes)
    return (_Old(*row) for row in session.exec(query.order_by(col(ChatRow.created_at)).limit(_AT_ONCE)))


def _made() -> ColumnElement[bool]:
    """Which responses have all that they will have."""
    return or_(col(ResponseRow.status).is_(None), col(ResponseRow.status).not_in(UNDER_WAY))
