"""Usage adds up, also when several processes count at once, on both databases."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest

from infra.database import Database, open_database
from infra.migrate import migrate
from infra.usage import Usage, add_usage, list_usage
from tests.infra.databases import postgres

MONDAY, TUESDAY = date(2026, 11, 30), date(2026, 12, 1)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        yield from _migrated(f"sqlite:///{tmp_path}/coderai.db")
    else:
        with postgres() as url:
            yield from _migrated(url)


def _migrated(url: str) -> Iterator[Database]:
    opened = open_database(url)
    migrate(opened)
    yield opened
    opened.close()


def use(day: date, key: str, **counts: int) -> Usage:
    return Usage(day, key, "smollm2", "chat", seconds=0.5, **counts)


def test_batches_add_up(database: Database) -> None:
    add_usage(database, [])
    add_usage(database, [use(MONDAY, "anna", requests=1, prompt_tokens=7), use(TUESDAY, "anna", requests=1)])
    add_usage(database, [use(MONDAY, "anna", requests=2, errors=1, completion_tokens=3), use(MONDAY, "bo", requests=1)])
    monday = list_usage(database, first_day=MONDAY, last_day=MONDAY)
    assert [item.key_name for item in monday] == ["anna", "bo"]
    total = Usage(
        MONDAY, "anna", "smollm2", "chat", requests=3, errors=1, prompt_tokens=7, completion_tokens=3, seconds=1
    )
    assert monday[0] == total
    assert len(list_usage(database, first_day=MONDAY, last_day=TUESDAY)) == 3

    def count(batch: list[Usage]) -> None:
        add_usage(database, batch)

    both = [use(TUESDAY, "anna", requests=1), use(TUESDAY, "bo", requests=1)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, [both if n % 2 else both[::-1] for n in range(40)]))
    assert [item.requests for item in list_usage(database, first_day=TUESDAY, last_day=TUESDAY)] == [41, 40]
