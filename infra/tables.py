"""The tables of the install's database. Every change here needs a migration (`infra/migrations/versions`)."""

from datetime import UTC, date, datetime

from sqlalchemy import JSON, BigInteger, Column, DateTime, Dialect, String
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from infra.types import Json

HEAD = "0001"
"""The revision that this version works with: the newest file of `infra/migrations/versions`."""
REVISIONS = frozenset({"0001"})
"""Every revision that this version can bring up to date, HEAD included."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite keeps no time zone, so it is put back on the way out; a naive value is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To the database: in UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a moment for the database needs its time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """From the database: with its time zone, UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class TokenRow(SQLModel, table=True):
    """An API key: its hash, never the key. A revoked one stays, so that its name keeps its meaning in `usage`."""

    __tablename__ = "token"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(sa_column=Column(String(64), nullable=False, unique=True))
    scope: str = Field(sa_column=Column(String(16), nullable=False))
    sha256: str = Field(sa_column=Column(String(64), nullable=False, unique=True))
    created_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))
    revoked_at: datetime | None = Field(default=None, sa_column=Column(UtcDateTime(), nullable=True))


class ModelRow(SQLModel, table=True):
    """A model that was added while running; `entry` is a `workers.types.ModelEntry` as JSON, its `api_key` included."""

    __tablename__ = "model"

    name: str = Field(sa_column=Column(String(200), primary_key=True))
    entry: dict[str, Json] = Field(sa_column=Column(JSON, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))
    updated_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))


class UsageRow(SQLModel, table=True):
    """What one key used of one model in one way on one day (UTC)."""

    __tablename__ = "usage"

    day: date = Field(primary_key=True)
    key_name: str = Field(sa_column=Column(String(64), primary_key=True))
    model: str = Field(sa_column=Column(String(200), primary_key=True))
    kind: str = Field(sa_column=Column(String(32), primary_key=True))
    requests: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    errors: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    prompt_tokens: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    completion_tokens: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    seconds: float = 0.0


class RevisionRow(SQLModel, table=True):
    """How often a topic's rows have changed: what a snapshot in memory is checked against."""

    __tablename__ = "revision"

    topic: str = Field(sa_column=Column(String(32), primary_key=True))
    number: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
