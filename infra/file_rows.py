"""Files of keys: rows in the database, their bytes in the file store, and the quotas. Everything blocks.

The row and the bytes come and go in one transaction that keeps every other writer of files out, so that content which
somebody still refers to is never removed. What a crash leaves between the two is content without a row, which `prune`
removes.
"""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import BinaryIO, Literal

from sqlalchemy import ColumnElement, func
from sqlmodel import Session, col, or_, select

from infra.clock import Clock, wall
from infra.database import Database, bump_revision
from infra.errors import DiskFull, InvalidRequest, NotFound
from infra.file_names import new_id
from infra.file_store import FileStore, Incoming
from infra.sections import FilesSettings
from infra.tables import BatchRow, FileRow, LoraRow, UploadPartRow
from infra.types import FileId, Frozen, KeyName

GENERATED = "generated"
"""The purpose of files that models have made: they are in no list, and have names of their own."""
ORPHAN_S = 3600.0
"""Content without a row is nobody's after that long."""
_MIB = 1 << 20
_AT_ONCE = 500
"""References in one query: databases take some thousands."""
Order = Literal["asc", "desc"]


class StoredFile(Frozen):
    """A file. `ref` is its content, `sha256:…`; `expires_at` is None where it stays until it is deleted."""

    id: FileId
    key: KeyName
    filename: str
    purpose: str
    media_type: str
    size_bytes: int
    ref: str
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewFile:
    """What a file is to be. `lasts_s`: seconds until it expires; `name`: its id, where it is not to be a new one."""

    key: KeyName
    filename: str
    purpose: str
    media_type: str = "application/octet-stream"
    lasts_s: float | None = None
    name: FileId | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which files are listed: those of `key` (of every key if None), beyond the file `after`."""

    key: KeyName | None
    purpose: str | None = None
    after: FileId | None = None
    order: Order = "desc"
    limit: int = 10_000


class Files:
    """The files of one install."""

    def __init__(self, database: Database, store: FileStore, settings: FilesSettings, now: Clock = wall) -> None:
        self.store = store
        self.settings = settings
        self._database = database
        self._now = now

    def now(self) -> datetime:
        """This moment, as rows have it."""
        return datetime.fromtimestamp(self._now(), UTC)

    def begin(self, key: KeyName, max_bytes: int, expected_bytes: int = 0, hint: str = "") -> Incoming:
        """Room for a file of at most `max_bytes` that `expected_bytes` were announced of; `hint` says what to do about
        one that is larger.

        Raises:
            InvalidRequest: the key's quota has no room for those.
            DiskFull: the quota of all files, or the disk, has none.
        """
        with self._database.read() as session:
            self.require_room(session, key, max(1, min(expected_bytes, max_bytes)))
        return self.store.begin(max_bytes, expected_bytes, hint)

    def add(self, incoming: Incoming, new: NewFile) -> StoredFile:
        """Keep a file whose bytes have all come. `incoming` is let go of, whatever happens.

        Raises:
            InvalidRequest, DiskFull: there is no room for it; nothing is kept.
        """
        try:
            sealed = incoming.seal()
            with self.changing() as session:
                self.require_room(session, new.key, sealed.size_bytes)
                row = self.row_for(new, sealed.ref, sealed.size_bytes)
                session.add(row)
                incoming.place()
            return _stored(row)
        finally:
            incoming.discard()

    def row_for(self, new: NewFile, ref: str, size_bytes: int) -> FileRow:
        """The row of a new file."""
        created_at = self.now()
        return FileRow(
            id=new.name or new_id("file-", created_at.timestamp()),
            key_name=new.key,
            filename=new.filename,
            purpose=new.purpose,
            media_type=new.media_type,
            size_bytes=size_bytes,
            ref=ref,
            created_at=created_at,
            expires_at=None if new.lasts_s is None else created_at + timedelta(seconds=new.lasts_s),
        )

    def get(self, file: FileId, key: KeyName | None) -> StoredFile:
        """A file that the key may see; None sees all.

        Raises:
            NotFound: there is none, it has expired, or it is another key's.
        """
        with self._database.read() as session:
            return _stored(self.find(session, file, key))

    def find(self, session: Session, file: FileId, key: KeyName | None) -> FileRow:
        """The row of `get`."""
        row = session.get(FileRow, file)
        if row is None or (key is not None and row.key_name != key) or self._expired(row):
            raise NotFound(
                f"there is no file {file[:100]!r}; GET /v1/files lists yours", param="file_id", code="file_not_found"
            )
        return row

    def page(self, wanted: Wanted) -> tuple[list[StoredFile], bool]:
        """Files by age, generated ones left out, and whether there are more."""
        newest = wanted.order == "desc"
        query = select(FileRow).where(col(FileRow.purpose) != GENERATED, ~self._is_expired())
        if wanted.key is not None:
            query = query.where(FileRow.key_name == wanted.key)
        if wanted.purpose is not None:
            query = query.where(FileRow.purpose == wanted.purpose)
        if wanted.after is not None:
            query = query.where(col(FileRow.id) < wanted.after if newest else col(FileRow.id) > wanted.after)
        by_age = col(FileRow.id).desc() if newest else col(FileRow.id)
        with self._database.read() as session:
            rows = session.exec(query.order_by(by_age).limit(wanted.limit + 1)).all()
        return [_stored(row) for row in rows[: wanted.limit]], len(rows) > wanted.limit

    def open(self, file: StoredFile) -> BinaryIO:
        """A file's bytes.

        Raises:
            NotFound: they have just been removed.
        """
        return self.store.open(file.ref)

    def delete(self, file: FileId, key: KeyName | None) -> None:
        """Remove a file that the key may see; its bytes go with the last file that has them.

        Raises:
            NotFound: as `get`.
        """
        with self.changing() as session:
            row = self.find(session, file, key)
            session.delete(row)
            self.drop_unreferred(session, {row.ref})

    def prune(self) -> int:
        """Remove what has expired, and what processes that died have left; returns how many files went."""
        with self.changing() as session:
            rows = session.exec(select(FileRow).where(self._is_expired())).all()
            for row in rows:
                session.delete(row)
            self.drop_unreferred(session, {row.ref for row in rows})
        self.store.clear_incoming()
        for refs in self.store.older(ORPHAN_S):
            with self.changing() as session:
                self.drop_unreferred(session, refs)
        return len(rows)

    def reading(self) -> AbstractContextManager[Session]:
        """A session that sees one moment."""
        return self._database.read()

    @contextmanager
    def changing(self) -> Iterator[Session]:
        """A transaction that no other change of files runs beside."""
        with self._database.write() as session:
            bump_revision(session, "files")
            yield session

    def drop_unreferred(self, session: Session, refs: Collection[str]) -> None:
        """Remove the content that no row refers to any more, in a `changing` session."""
        session.flush()
        left = list(set(refs))
        for some in (left[at : at + _AT_ONCE] for at in range(0, len(left), _AT_ONCE)):
            needed: set[str] = set()
            for ref in (col(FileRow.ref), col(UploadPartRow.ref), col(BatchRow.input_ref), col(LoraRow.ref)):
                needed |= {one for one in session.exec(select(ref).where(ref.in_(some))).all() if one}
            for unneeded in set(some) - needed:
                self.store.remove(unneeded)

    def used_bytes(self, session: Session, key: KeyName | None) -> int:
        """What the files of a key, or all, take; the same content twice counts twice."""
        used = 0
        for table in (FileRow, UploadPartRow, LoraRow):
            query = select(func.coalesce(func.sum(table.size_bytes), 0))
            used += int(session.exec(query if key is None else query.where(table.key_name == key)).one())
        return used

    def require_room(self, session: Session, key: KeyName, size_bytes: int) -> None:
        """See `begin`."""
        quota_bytes = self.settings.quota_per_key_mb * _MIB
        used_bytes = self.used_bytes(session, key)
        if used_bytes + size_bytes > quota_bytes:
            raise InvalidRequest(
                f"the files of the key {key!r} take {used_bytes} bytes of the {quota_bytes} that it may have "
                f"(files.quota_per_key_mb), so that {size_bytes} more do not fit: delete some",
                code="file_quota_exceeded",
            )
        if self.used_bytes(session, None) + size_bytes > self.settings.quota_total_mb * _MIB:
            raise DiskFull(
                f"the files of this install may take {self.settings.quota_total_mb} MiB (files.quota_total_mb), so "
                f"that {size_bytes} more bytes do not fit: delete some, or raise the quota",
                code="file_quota_exceeded",
            )

    def _oldest(self) -> datetime | None:
        """Files made before that moment have expired, whatever they say."""
        days = self.settings.keep_days
        return self.now() - timedelta(days=days) if days else None

    def _expired(self, row: FileRow) -> bool:
        oldest = self._oldest()
        gone = row.expires_at is not None and row.expires_at <= self.now()
        return gone or (oldest is not None and row.created_at <= oldest)

    def _is_expired(self) -> ColumnElement[bool]:
        expires_at, created_at, oldest = col(FileRow.expires_at), col(FileRow.created_at), self._oldest()
        gone = expires_at.is_not(None) & (expires_at <= self.now())
        return gone if oldest is None else or_(gone, created_at <= oldest)


def _stored(row: FileRow) -> StoredFile:
    return StoredFile(
        id=FileId(row.id),
        key=KeyName(row.key_name),
        filename=row.filename,
        purpose=row.purpose,
        media_type=row.media_type,
        size_bytes=row.size_bytes,
        ref=row.ref,
        created_at=row.created_at,
        expires_at=row.expires_at,
    )
