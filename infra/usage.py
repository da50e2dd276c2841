"""What keys used: counted in memory by the front, added to the database in batches."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date

from sqlalchemy import ColumnElement
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from infra.database import Database
from infra.tables import UsageRow

_COUNTS = ("requests", "errors", "prompt_tokens", "completion_tokens", "seconds", "units")
_KEY = ("day", "key_name", "model", "kind")


@dataclass(frozen=True, slots=True)
class Usage:
    """What one key used of one model in one way (`kind`: chat, embeddings, …) on one day (UTC). Counts add up.

    `seconds` is the time that the requests took together; `units` what they used besides tokens, in what the kind is
    counted in: pages read (`ocr`), seconds of sound heard (`transcription`), characters
    spoken (`speech`), images and videos made.
    """

    day: date
    key_name: str
    model: str
    kind: str
    requests: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    units: float = 0.0


def add_usage(database: Database, batch: Iterable[Usage]) -> None:
    """Add a batch to what is stored, all of it in one transaction.

    Raises:
        DiskFull, DatabaseUnusable: nothing was added; the same batch may be given again.
    """
    # In one order everywhere: two processes that count the same keys then never wait for each other in a circle.
    items = sorted(batch, key=lambda item: (item.day, item.key_name, item.model, item.kind))
    if not items:
        return
    with database.write() as session:
        for item in items:
            _upsert(session, item)


def list_usage(database: Database, *, first_day: date, last_day: date) -> tuple[Usage, ...]:
    """What was used from `first_day` to `last_day`, both included, ordered by day, key, model and kind."""
    query = (
        select(UsageRow)
        .where(col(UsageRow.day).between(first_day, last_day))
        .order_by(*(getattr(UsageRow, name) for name in _KEY))
    )
    with database.read() as session:
        rows = session.exec(query).all()
    return tuple(Usage(**{name: getattr(row, name) for name in (*_KEY, *_COUNTS)}) for row in rows)


def _upsert(session: Session, item: Usage) -> None:
    """One statement that both databases know: two processes that count at once lose nothing."""
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    statement = dialect.insert(UsageRow).values(**asdict(item))
    sums: dict[str, ColumnElement[float]] = {
        name: getattr(UsageRow, name) + statement.excluded[name] for name in _COUNTS
    }
    session.execute(statement.on_conflict_do_update(index_elements=list(_KEY), set_=sums))
