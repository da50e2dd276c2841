"""Files that come in parts: each part is kept as it comes, and the last call makes one file of them. All blocks."""

from datetime import datetime, timedelta
from typing import Literal

from sqlmodel import Session, col, select

from infra.errors import InvalidRequest, NotFound
from infra.file_names import new_id
from infra.file_rows import Files, NewFile, StoredFile
from infra.file_store import Incoming, Sealed
from infra.files import CHUNK_BYTES
from infra.tables import UploadPartRow, UploadRow
from infra.types import FileId, Frozen, KeyName, PartId, UploadId

PART_BYTES = 64 << 20
"""The largest part."""
LASTS_S = 3600.0
"""Seconds from an upload's beginning until it expires."""
_KNOWN_S = 24 * 3600.0
"""Seconds that an upload can still be looked at after it has expired."""
Status = Literal["pending", "completed", "cancelled", "expired"]


class Upload(Frozen):
    """A file that comes in parts; `file` is the one they became."""

    id: UploadId
    key: KeyName
    filename: str
    purpose: str
    size_bytes: int
    status: Status
    created_at: datetime
    expires_at: datetime
    file: StoredFile | None


class Part(Frozen):
    """One part of an upload."""

    id: PartId
    upload: UploadId
    created_at: datetime


class Uploads:
    """The uploads of one install; their bytes lie where those of `files` do."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def create(self, new: NewFile, size_bytes: int) -> Upload:
        """Begin an upload of that size.

        Raises:
            InvalidRequest, DiskFull: there is no room for it.
        """
        created_at = self._files.now()
        row = UploadRow(
            id=new_id("upload_", created_at.timestamp()),
            key_name=new.key,
            filename=new.filename,
            purpose=new.purpose,
            media_type=new.media_type,
            size_bytes=size_bytes,
            status="pending",
            created_at=created_at,
            expires_at=created_at + timedelta(seconds=LASTS_S),
            file_expires_s=None if new.lasts_s is None else round(new.lasts_s),
        )
        with self._files.changing() as session:
            self._files.require_room(session, new.key, size_bytes)
            session.add(row)
        return self._upload(row, None)

    def begin_part(self, upload: UploadId, key: KeyName | None, expected_bytes: int) -> Incoming:
        """Room for a part.

        Raises:
            NotFound: no such upload of this key.
            InvalidRequest: it takes no more parts, or the quota has no room.
            DiskFull: there is no room.
        """
        with self._files.changing() as session:
            owner = self._pending(session, upload, key).key_name
        return self._files.begin(KeyName(owner), PART_BYTES, expected_bytes, "send it in more parts")

    def add_part(self, upload: UploadId, key: KeyName | None, incoming: Incoming) -> Part:
        """Keep a part whose bytes have all come. `incoming` is let go of, whatever happens.

        Raises:
            NotFound, InvalidRequest, DiskFull: as `begin_part`; or the parts are more than the upload was to have.
        """
        try:
            sealed = incoming.seal()
            with self._files.changing() as session:
                return self._add_part(session, self._pending(session, upload, key), sealed, incoming)
        finally:
            incoming.discard()

    def complete(self, upload: UploadId, key: KeyName | None, parts: list[PartId], md5: str | None) -> Upload:
        """Make one file of the parts, in that order; parts that are not named are dropped.

        Raises:
            NotFound: no such upload of this key.
            InvalidRequest: it is not pending, a part is not its own, or sizes or the MD5 differ from what was said.
            DiskFull: no room for parts and file side by side.
        """
        with self._files.changing() as session:
            row = self._pending(session, upload, key)
            refs = self._refs_in_order(session, row, parts)
        incoming = self._files.store.begin(row.size_bytes, row.size_bytes)
        try:
            for ref in refs:
                self._copy(ref, incoming)
            sealed = incoming.seal()
            if md5 is not None and md5.strip().lower() != sealed.md5:
                raise InvalidRequest(
                    f"the parts' MD5 is {sealed.md5}, not {md5[:40]!r}: send the damaged part once more, or name the "
                    "parts in another order",
                    param="md5",
                    code="md5_mismatch",
                )
            return self._made_whole(upload, key, sealed, incoming)
        finally:
            incoming.discard()

    def cancel(self, upload: UploadId, key: KeyName | None) -> Upload:
        """Give an upload up; its parts go.

        Raises:
            NotFound: no such upload of this key.
            InvalidRequest: it is not pending.
        """
        with self._files.changing() as session:
            row = self._pending(session, upload, key)
            row.status = "cancelled"
            session.add(row)
            self._drop_parts(session, row)
        return self._upload(row, None)

    def prune(self) -> int:
        """Drop the parts of uploads that have expired, and forget those of long ago; returns how many have expired."""
        now = self._files.now()
        with self._files.changing() as session:
            late = select(UploadRow).where(UploadRow.status == "pending", col(UploadRow.expires_at) <= now)
            rows = session.exec(late).all()
            for row in rows:
                row.status = "expired"
                session.add(row)
                self._drop_parts(session, row)
            forgotten = now - timedelta(seconds=_KNOWN_S)
            for row in session.exec(select(UploadRow).where(col(UploadRow.expires_at) <= forgotten)).all():
                session.delete(row)
        return len(rows)

    def _pending(self, session: Session, upload: UploadId, key: KeyName | None) -> UploadRow:
        row = session.get(UploadRow, upload)
        if row is None or (key is not None and row.key_name != key):
            raise NotFound(f"there is no upload {upload[:100]!r}", param="upload_id", code="upload_not_found")
        status = "expired" if row.status == "pending" and row.expires_at <= self._files.now() else row.status
        if status != "pending":
            raise InvalidRequest(
                f"the upload {upload!r} is {status}: begin a new one", param="upload_id", code=f"upload_{status}"
            )
        return row

    def _add_part(self, session: Session, row: UploadRow, sealed: Sealed, incoming: Incoming) -> Part:
        there = sum(part.size_bytes for part in self._parts(session, row))
        if sealed.size_bytes + there > row.size_bytes:
            raise InvalidRequest(
                f"the upload {row.id!r} was to have {row.size_bytes} bytes; with this part of {sealed.size_bytes} it "
                f"would have {there + sealed.size_bytes}: begin a new one of the right size",
                param="data",
            )
        self._files.require_room(session, KeyName(row.key_name), sealed.size_bytes)
        created_at = self._files.now()
        part = UploadPartRow(
            id=new_id("part_", created_at.timestamp()),
            upload_id=row.id,
            key_name=row.key_name,
            size_bytes=sealed.size_bytes,
            ref=sealed.ref,
            created_at=created_at,
        )
        session.add(part)
        incoming.place()
        return Part(id=PartId(part.id), upload=UploadId(row.id), created_at=created_at)

    def _refs_in_order(self, session: Session, row: UploadRow, parts: list[PartId]) -> list[str]:
        known = {part.id: part for part in self._parts(session, row)}
        strange = next((part for part in parts if part not in known), None)
        if strange is not None:
            raise InvalidRequest(f"{strange[:100]!r} is no part of the upload {row.id!r}", param="part_ids")
        if len(set(parts)) != len(parts):
            raise InvalidRequest("a part is named twice: name each once, in the file's order", param="part_ids")
        there = sum(known[part].size_bytes for part in parts)
        if there != row.size_bytes:
            raise InvalidRequest(
                f"the parts have {there} bytes together; the upload {row.id!r} was to have {row.size_bytes}: send and "
                "name all of them",
                param="part_ids",
            )
        return [known[part].ref for part in parts]

    def _copy(self, ref: str, incoming: Incoming) -> None:
        with self._files.store.open(ref) as part:
            while chunk := part.read(CHUNK_BYTES):
                incoming.write(chunk)

    def _made_whole(self, upload: UploadId, key: KeyName | None, sealed: Sealed, incoming: Incoming) -> Upload:
        with self._files.changing() as session:
            row = self._pending(session, upload, key)
            lasts_s = None if row.file_expires_s is None else float(row.file_expires_s)
            new = NewFile(KeyName(row.key_name), row.filename, row.purpose, row.media_type, lasts_s)
            file = self._files.row_for(new, sealed.ref, sealed.size_bytes)
            session.add(file)
            incoming.place()
            row.status, row.file_id = "completed", file.id
            session.add(row)
            self._drop_parts(session, row)
        return self._upload(row, self._files.get(FileId(file.id), None))

    def _parts(self, session: Session, row: UploadRow) -> list[UploadPartRow]:
        return list(session.exec(select(UploadPartRow).where(UploadPartRow.upload_id == row.id)).all())

    def _drop_parts(self, session: Session, row: UploadRow) -> None:
        parts = self._parts(session, row)
        for part in parts:
            session.delete(part)
        self._files.drop_unreferred(session, {part.ref for part in parts})

    def _upload(self, row: UploadRow, file: StoredFile | None) -> Upload:
        return Upload(
            id=UploadId(row.id),
            key=KeyName(row.key_name),
            filename=row.filename,
            purpose=row.purpose,
            size_bytes=row.size_bytes,
            status=_STATUSES[row.status],
            created_at=row.created_at,
            expires_at=row.expires_at,
            file=file,
        )


_STATUSES: dict[str, Status] = {
    "pending": "pending",
    "completed": "completed",
    "cancelled": "cancelled",
    "expired": "expired",
}
