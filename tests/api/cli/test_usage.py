"""`coderai usage`: what was counted in the last days."""

from datetime import UTC, datetime, timedelta

from infra.database import open_database
from infra.settings import load_settings
from infra.usage import Usage, add_usage
from tests.api.cli.conftest import Run


def test_the_days_that_were_asked_for(run: Run) -> None:
    run("tokens", "list")  # makes the database
    today = datetime.now(UTC).date()
    database = open_database(load_settings().sqlalchemy_url)
    add_usage(
        database,
        [
            Usage(today, "ann", "tiny", "chat", 12, 1, 345, 67, 8.91, 12.5),
            Usage(today - timedelta(days=1), "bob", "tiny", "embeddings", 2),
            Usage(today - timedelta(days=7), "old", "tiny", "chat", 1),
        ],
    )
    database.close()
    week, day = run("usage"), run("usage", "--days", "1")
    (line,) = [line for line in week.splitlines() if "ann" in line]
    assert [cell.strip() for cell in line.strip("│┃ ").split("│")] == [
        str(today), "ann", "tiny", "chat", "12", "1", "345", "67", "8.9", "12.5"
    ]  # fmt: skip
    assert "bob" in week
    assert "old" not in week
    assert "ann" in day
    assert "bob" not in day
