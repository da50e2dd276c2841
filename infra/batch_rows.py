"""Batches: what was asked for, how far it is, and the files it gave. Everything blocks.

The front makes and cancels them, the worker process carries them out; the rows are what both know of each.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from pydantic import Field
from sqlmodel import Session, col, select

from infra.batch_usage import BatchUsage, Spent
from infra.errors import Conflict, InvalidRequest, NotFound
from infra.file_names import new_id
from infra.file_rows import Files, NewFile
from infra.files import CHUNK_BYTES
from infra.tables import BatchRow
from infra.types import BatchId, FileId, Frozen, KeyName, RunId

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
OVER: Final[frozenset[Status]] = frozenset({"failed", "completed", "expired", "cancelled"})
WINDOW_S: Final = 24 * 3600.0
"""The one completion window there is."""
_JSONL: Final = "application/jsonl"


class BatchProblem(Frozen):
    """Why a batch was refused: OpenAI's shape. `line` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Batch(Frozen):
    """A batch, as its row has it."""

    id: BatchId
    key: KeyName
    run: RunId | None
    flow: str
    endpoint: str
    input_file: FileId
    input_ref: str | None
    output_file: FileId | None
    error_file: FileId | None
    output_lasts_s: int | None
    status: Status
    created_at: datetime
    expires_at: datetime
    moments: dict[str, int]
    labels: dict[str, str]
    errors: list[BatchProblem]
    total: int
    completed: int
    failed: int
    model: str | None = None
    usage: BatchUsage | None = None


class NewBatch(Frozen):
    """What a batch is to do."""

    key: KeyName
    flow: str
    endpoint: str
    input_file: FileId
    output_lasts_s: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class Batches:
    """The batches of one install."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def create(self, new: NewBatch, key: KeyName | None) -> Batch:
        """A batch over a file that the key may see; the file's content is kept while the batch runs.

        Raises:
            InvalidRequest: there is no such file, or it is none for batches.
        """
        created_at = self.files.now()
        with self.files.changing() as session:
            file = self._input(session, new.input_file, key)
            row = BatchRow(
                id=new_id("batch_", created_at.timestamp()),
                key_name=new.key,
                flow=new.flow,
                endpoint=new.endpoint,
                input_file_id=new.input_file,
                input_ref=file,
                output_lasts_s=new.output_lasts_s,
                status="validating",
                created_at=created_at,
                expires_at=created_at + timedelta(seconds=WINDOW_S),
                labels=dict(new.labels),
            )
            session.add(row)
        return _batch(row)

    def started(self, batch: BatchId, run: RunId) -> Batch:
        """Note the flow run that carries it out."""
        with self.files.changing() as session:
            row = self._row(session, batch, None)
            row.run_id = run
            session.add(row)
        return _batch(row)

    def forget(self, batch: BatchId) -> None:
        """Remove one that could not be begun."""
        with self.files.changing() as session:
            row = self._row(session, batch, None)
            session.delete(row)
            self.files.drop_unreferred(session, {row.input_ref} if row.input_ref else set())

    def get(self, batch: BatchId, key: KeyName | None) -> Batch:
        """A batch that the key may see; None sees all.

        Raises:
            NotFound: there is none, or it is another key's.
        """
        with self.files.reading() as session:
            return _batch(self._row(session, batch, key))

    def page(self, key: KeyName | None, after: BatchId | None, limit: int) -> tuple[list[Batch], bool]:
        """Batches, the newest first, and whether there are more."""
        query = select(BatchRow).order_by(col(BatchRow.id).desc()).limit(limit + 1)
        if key is not None:
            query = query.where(BatchRow.key_name == key)
        if after is not None:
            query = query.where(col(BatchRow.id) < after)
        with self.files.reading() as session:
            rows = session.exec(query).all()
        return [_batch(row) for row in rows[:limit]], len(rows) > limit

    def under_way(self) -> list[Batch]:
        """The batches that are not over."""
        with self.files.reading() as session:
            rows = session.exec(select(BatchRow).where(col(BatchRow.status).not_in(OVER))).all()
        return [_batch(row) for row in rows]

    def move(self, batch: BatchId, status: Status, problems: list[BatchProblem] | None = None) -> Batch:
        """Bring a batch into a status. One that is over stays so, one that is being cancelled does not go on."""
        with self.files.changing() as session:
            row = self._row(session, batch, None)
            self._move(session, row, status, problems or [])
        return _batch(row)

    def cancel(self, batch: BatchId, key: KeyName | None) -> Batch:
        """Wish that it ends.

        Raises:
            NotFound: as `get`.
            Conflict: it is over.
        """
        with self.files.changing() as session:
            row = self._row(session, batch, key)
            if row.status in OVER:
                raise Conflict(f"the batch {batch!r} is {row.status}: there is nothing to cancel", code="batch_over")
            self._move(session, row, "cancelling", [])
        return _batch(row)

    def count(self, batch: BatchId, total: int, completed: int, failed: int) -> None:
        """How far it is. One who comes late with what was true before changes nothing."""
        with self.files.changing() as session:
            row = self._row(session, batch, None)
            if row.status in OVER:
                return
            row.total, row.completed, row.failed = total, max(row.completed, completed), max(row.failed, failed)
            session.add(row)

    def finish(self, batch: BatchId, status: Status, outputs: Mapping[str, Path], spent: Spent | None = None) -> Batch:
        """Keep the files `output` and `error` where they have lines, note what was used, and end the batch.

        Raises:
            InvalidRequest, DiskFull: the key's quota or the disk has no room.
        """
        found = self.get(batch, None)
        if found.status in OVER:
            return found
        kept = {name: self._kept(found, name, path) for name, path in outputs.items()}
        with self.files.changing() as session:
            row = self._row(session, batch, None)
            row.output_file_id, row.error_file_id = kept.get("output"), kept.get("error")
            if spent is not None:
                row.model, row.usage = spent.model, spent.usage.model_dump()
            self._move(session, row, status, [])
        return _batch(row)

    def _kept(self, batch: Batch, name: str, path: Path) -> FileId | None:
        size_bytes = path.stat().st_size if path.exists() else 0
        if not size_bytes:
            return None
        incoming = self.files.begin(batch.key, size_bytes, size_bytes)
        try:
            with path.open("rb") as lines:
                while chunk := lines.read(CHUNK_BYTES):
                    incoming.write(chunk)
            new = NewFile(batch.key, f"{batch.id}_{name}.jsonl", "batch_output", _JSONL, batch.output_lasts_s)
            return self.files.add(incoming, new).id
        finally:
            incoming.discard()

    def _input(self, session: Session, file: FileId, key: KeyName | None) -> str:
        try:
            row = self.files.find(session, file, key)
        except NotFound as error:
            raise InvalidRequest(error.message, param="input_file_id", code="file_not_found") from error
        if row.purpose != "batch":
            raise InvalidRequest(
                f"the file {file!r} was sent for {row.purpose}: send it with the purpose batch", param="input_file_id"
            )
        return row.ref

    def _row(self, session: Session, batch: BatchId, key: KeyName | None) -> BatchRow:
        row = session.get(BatchRow, batch)
        if row is None or (key is not None and row.key_name != key):
            raise NotFound(f"there is no batch {batch[:100]!r}", param="batch_id", code="batch_not_found")
        return row

    def _move(self, session: Session, row: BatchRow, status: Status, problems: list[BatchProblem]) -> None:
        if row.status in OVER or (row.status == "cancelling" and status not in OVER):
            return
        row.status = status
        row.moments = row.moments | {f"{status}_at": int(self.files.now().timestamp())}
        row.errors = [problem.model_dump() for problem in problems]
        ref, row.input_ref = row.input_ref, None if status in OVER else row.input_ref
        session.add(row)
        if ref is not None and row.input_ref is None:
            self.files.drop_unreferred(session, {ref})


def _batch(row: BatchRow) -> Batch:
    return Batch.model_validate(
        {
            "id": row.id,
            "key": row.key_name,
            "run": row.run_id,
            "flow": row.flow,
            "endpoint": row.endpoint,
            "input_file": row.input_file_id,
            "input_ref": row.input_ref,
            "output_file": row.output_file_id,
            "error_file": row.error_file_id,
            "output_lasts_s": row.output_lasts_s,
            "status": row.status,
            "created_at": row.created_at,
            "expires_at": row.expires_at,
            "moments": row.moments,
            "labels": row.labels,
            "errors": row.errors,
            "total": row.total,
            "completed": row.completed,
            "failed": row.failed,
            "model": row.model,
            "usage": row.usage,
        }
    )
