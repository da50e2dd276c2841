"""Which stored answers go, in a real database."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlmodel import SQLModel, select

from infra.answer_pruning import prune
from infra.database import Database
from infra.tables import ChatLabelRow, ChatRow, ResponseRow
from tests.infra.databases import database, postgres_url

__all__ = ["database", "postgres_url"]


def ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def response(name: str, days: float, status: str | None = None, size_bytes: int = 1000) -> ResponseRow:
    moment = ago(days)
    return ResponseRow(
        id=name, key_name="a", size_bytes=size_bytes, created_at=moment, used_at=moment, response={}, input=[],
        status=status,
    )  # fmt: skip


def chat(name: str, days: float, size_bytes: int = 1000) -> ChatRow:
    moment = ago(days)
    return ChatRow(
        id=name,
        key_name="a",
        model="m",
        size_bytes=size_bytes,
        completion_bytes=0,
        created_at=moment,
        completion={},
        messages=[],
    )


def put(database: Database, *rows: SQLModel) -> None:
    with database.write() as session:
        session.add_all(rows)


def there(database: Database) -> list[str]:
    with database.read() as session:
        names: list[Any] = [*session.exec(select(ResponseRow.id)), *session.exec(select(ChatRow.id))]
    return sorted(names)


def test_what_is_old_goes_and_its_labels_with_it(database: Database) -> None:
    put(database, response("r old", 31), response("r", 29), chat("c old", 31), chat("c", 29))
    put(database, *(ChatLabelRow(completion_id=name, name="k", value="v") for name in ("c old", "c")))
    assert prune(database, 30, 2**30) == 2
    assert there(database) == ["c", "r"]
    with database.read() as session:
        assert session.exec(select(ChatLabelRow.completion_id)).all() == ["c"]
    assert prune(database, 30, 2**30) == 0


def test_what_is_over_the_limit_goes_the_oldest_first_whichever_kind_it_is(database: Database) -> None:
    put(database, response("r1", 1), chat("c2", 2), response("r3", 3), chat("c4", 4))
    assert prune(database, 30, 4000) == 0
    assert prune(database, 30, 2500) == 2
    assert there(database) == ["c2", "r1"]
    assert prune(database, 30, 1000) == 1
    assert there(database) == ["r1"]
    assert prune(database, 30, 1) == 1


def test_many_small_ones_go_for_a_large_one(database: Database) -> None:
    put(database, chat("large", 0, 10_000), *(chat(f"{number:03}", 1, 10) for number in range(450)))
    put(database, *(response(f"r{number:03}", 1, None, 10) for number in range(450)))
    assert prune(database, 30, 10_100) == 890
    assert "large" in there(database)
    assert len(there(database)) == 11


def test_what_is_still_being_made_does_not_go(database: Database) -> None:
    put(database, response("r", 31, "in_progress"), chat("c", 1))
    assert prune(database, 30, 1) == 1
    assert there(database) == ["r"]
    with database.write() as session:
        row = session.get(ResponseRow, "r")
        assert row is not None
        row.status = "completed"
        session.add(row)
    assert prune(database, 30, 2**30) == 1
