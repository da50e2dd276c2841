"""The tables of the install's database. Every change here needs a migration (`infra/migrations/versions`)."""

from datetime import UTC, date, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    String,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from infra.types import Json

HEAD = "0007"
"""The revision that this version works with: the newest file of `infra/migrations/versions`."""
REVISIONS = frozenset({"0001", "0002", "0003", "0004", "0005", "0006", "0007"})
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
    units: float = Field(default=0.0, sa_column=Column(Float(), nullable=False, server_default="0"))


class ResponseRow(SQLModel, table=True):
    """A stored answer of `/v1/responses`: the object, and the items that this request (not those before it) gave.

    `used_at` is when it was made, or last was part of a conversation that went on. One that is made in the background
    has a `status`, the response's own, and the flow run `run_id` that makes it; of others both are null.
    """

    __tablename__ = "response"

    id: str = Field(sa_column=Column(String(80), primary_key=True))
    key_name: str = Field(sa_column=Column(String(64), nullable=False))
    previous_id: str | None = Field(default=None, sa_column=Column(String(80), nullable=True))
    size_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))
    used_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False, index=True))
    response: dict[str, Json] = Field(sa_column=Column(JSON, nullable=False))
    input: list[dict[str, Json]] = Field(sa_column=Column(JSON, nullable=False))
    run_id: str | None = Field(default=None, sa_column=Column(String(36), nullable=True))
    status: str | None = Field(default=None, sa_column=Column(String(16), nullable=True, index=True))


class ChatRow(SQLModel, table=True):
    """A stored chat completion of `/v1/chat/completions`: the object, and the messages that its request gave. Its id
    sorts by age; of its `size_bytes` the object takes `completion_bytes`."""

    __tablename__ = "chat_completion"
    __table_args__ = (Index("ix_chat_completion_key_name_id", "key_name", "id"),)

    id: str = Field(sa_column=Column(String(80), primary_key=True))
    key_name: str = Field(sa_column=Column(String(64), nullable=False))
    model: str = Field(sa_column=Column(String(200), nullable=False))
    size_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    completion_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False, index=True))
    completion: dict[str, Json] = Field(sa_column=Column(JSON, nullable=False))
    messages: list[dict[str, Json]] = Field(sa_column=Column(JSON, nullable=False))


class ChatLabelRow(SQLModel, table=True):
    """One pair of a stored chat completion's `metadata`; it goes with the completion."""

    __tablename__ = "chat_label"

    completion_id: str = Field(
        sa_column=Column(String(80), ForeignKey("chat_completion.id", ondelete="CASCADE"), primary_key=True)
    )
    name: str = Field(sa_column=Column(String(64), primary_key=True))
    value: str = Field(sa_column=Column(String(512), nullable=False))


class RevisionRow(SQLModel, table=True):
    """How often a topic's rows have changed: what a snapshot in memory is checked against."""

    __tablename__ = "revision"

    topic: str = Field(sa_column=Column(String(32), primary_key=True))
    number: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))


class FileRow(SQLModel, table=True):
    """A file of a key. Its bytes lie in the file store under `ref` (`sha256:…`), once for all rows that have it."""

    __tablename__ = "file"

    id: str = Field(sa_column=Column(String(80), primary_key=True))
    key_name: str = Field(sa_column=Column(String(64), nullable=False, index=True))
    filename: str = Field(sa_column=Column(String(255), nullable=False))
    purpose: str = Field(sa_column=Column(String(32), nullable=False))
    media_type: str = Field(sa_column=Column(String(100), nullable=False))
    size_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    ref: str = Field(sa_column=Column(String(71), nullable=False, index=True))
    created_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))
    expires_at: datetime | None = Field(default=None, sa_column=Column(UtcDateTime(), nullable=True))


class UploadRow(SQLModel, table=True):
    """A file that comes in parts."""

    __tablename__ = "upload"

    id: str = Field(sa_column=Column(String(80), primary_key=True))
    key_name: str = Field(sa_column=Column(String(64), nullable=False))
    filename: str = Field(sa_column=Column(String(255), nullable=False))
    purpose: str = Field(sa_column=Column(String(32), nullable=False))
    media_type: str = Field(sa_column=Column(String(100), nullable=False))
    size_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    status: str = Field(sa_column=Column(String(16), nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))
    expires_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))
    file_expires_s: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    file_id: str | None = Field(default=None, sa_column=Column(String(80), nullable=True))


class UploadPartRow(SQLModel, table=True):
    """One part of an upload that is not complete; it counts as its key's until then."""

    __tablename__ = "upload_part"

    id: str = Field(sa_column=Column(String(80), primary_key=True))
    upload_id: str = Field(sa_column=Column(String(80), nullable=False, index=True))
    key_name: str = Field(sa_column=Column(String(64), nullable=False))
    size_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    ref: str = Field(sa_column=Column(String(71), nullable=False, index=True))
    created_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))


class BatchRow(SQLModel, table=True):
    """A batch. `input_ref` is its input's content while it runs; `moments` when it came into each status, in seconds
    since the epoch by OpenAI's names; `errors` why it was refused, `usage` what it has used, as OpenAI's objects."""

    __tablename__ = "batch"

    id: str = Field(sa_column=Column(String(80), primary_key=True))
    key_name: str = Field(sa_column=Column(String(64), nullable=False))
    run_id: str | None = Field(default=None, sa_column=Column(String(36), nullable=True))
    flow: str = Field(sa_column=Column(String(32), nullable=False))
    endpoint: str = Field(sa_column=Column(String(64), nullable=False))
    input_file_id: str = Field(sa_column=Column(String(80), nullable=False))
    input_ref: str | None = Field(default=None, sa_column=Column(String(71), nullable=True, index=True))
    output_file_id: str | None = Field(default=None, sa_column=Column(String(80), nullable=True))
    error_file_id: str | None = Field(default=None, sa_column=Column(String(80), nullable=True))
    output_lasts_s: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    status: str = Field(sa_column=Column(String(16), nullable=False, index=True))
    created_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))
    expires_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))
    moments: dict[str, Json] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    labels: dict[str, Json] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    errors: list[Json] = Field(default_factory=list, sa_column=Column(JSON, nullable=False))
    total: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    completed: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    failed: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    model: str | None = Field(default=None, sa_column=Column(String(200), nullable=True))
    usage: dict[str, Json] | None = Field(default=None, sa_column=Column(JSON, nullable=True))


class LoraRow(SQLModel, table=True):
    """A LoRA adapter of a key, in the file store under `ref`; `shared`: an admin's, whose name everybody may use."""

    __tablename__ = "lora"
    __table_args__ = (UniqueConstraint("key_name", "name"),)

    id: str = Field(sa_column=Column(String(80), primary_key=True))
    key_name: str = Field(sa_column=Column(String(64), nullable=False))
    name: str | None = Field(default=None, sa_column=Column(String(100), nullable=True))
    shared: bool = Field(sa_column=Column(Boolean(), nullable=False))
    base_model: str | None = Field(default=None, sa_column=Column(String(200), nullable=True))
    rank: int = Field(sa_column=Column(BigInteger, nullable=False))
    size_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    ref: str = Field(sa_column=Column(String(71), nullable=False, index=True))
    created_at: datetime = Field(sa_column=Column(UtcDateTime(), nullable=False))
