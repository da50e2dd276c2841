"""OpenAI's shapes of files and uploads, and what a request may say of a new file."""

from datetime import datetime
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError

from infra.errors import InvalidRequest
from infra.file_names import plain_filename
from infra.file_rows import StoredFile
from infra.types import FileId, Frozen, PartId, UploadId
from infra.upload_rows import Part, Status, Upload

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
"""What a client may say that a file is for."""
_PURPOSE: TypeAdapter[Purpose] = TypeAdapter(Purpose)
_BATCH_LASTS_S = 30 * 86_400.0
"""OpenAI's: a file for a batch that says nothing else expires."""


class ExpiresAfter(Frozen):
    """When a file is to expire."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=2_592_000, description="From an hour to 30 days.")


class FileObject(Frozen):
    """OpenAI's file object."""

    id: FileId
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = None
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"


class FileList(Frozen):
    """Files by age. `has_more`: ask again with `after` set to `last_id`."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: FileId | None = None
    last_id: FileId | None = None
    has_more: bool


class FileDeleted(Frozen):
    """OpenAI's answer to a deletion."""

    id: FileId
    object: Literal["file"] = "file"
    deleted: bool


class UploadObject(Frozen):
    """OpenAI's upload object; `file` is what its parts became."""

    id: UploadId
    object: Literal["upload"] = "upload"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Status
    expires_at: int
    file: FileObject | None = None


class PartObject(Frozen):
    """OpenAI's upload part object."""

    id: PartId
    object: Literal["upload.part"] = "upload.part"
    created_at: int
    upload_id: UploadId


def file_object(file: StoredFile) -> FileObject:
    """A file as clients see it."""
    return FileObject(
        id=file.id,
        bytes=file.size_bytes,
        created_at=_seconds(file.created_at),
        expires_at=None if file.expires_at is None else _seconds(file.expires_at),
        filename=file.filename,
        purpose=file.purpose,
    )


def upload_object(upload: Upload) -> UploadObject:
    """An upload as clients see it."""
    return UploadObject(
        id=upload.id,
        bytes=upload.size_bytes,
        created_at=_seconds(upload.created_at),
        filename=upload.filename,
        purpose=upload.purpose,
        status=upload.status,
        expires_at=_seconds(upload.expires_at),
        file=None if upload.file is None else file_object(upload.file),
    )


def part_object(part: Part) -> PartObject:
    """A part as clients see it."""
    return PartObject(id=part.id, created_at=_seconds(part.created_at), upload_id=part.upload)


def lasts_s(purpose: str, after: ExpiresAfter | None) -> float | None:
    """How long a file is to last, in seconds; None: until it is deleted."""
    if after is not None:
        return float(after.seconds)
    return _BATCH_LASTS_S if purpose == "batch" else None


def checked_purpose(given: str | None) -> Purpose:
    """The purpose of a form.

    Raises:
        InvalidRequest: it is missing, or none that there is.
    """
    try:
        return _PURPOSE.validate_python(given)
    except ValidationError as error:
        said = "is missing" if given is None else f"cannot be {given[:100]!r}"
        raise InvalidRequest(
            f"purpose {said}: it is one of assistants, batch, fine-tune, vision, user_data, evals", param="purpose"
        ) from error


def expiry_of(fields: dict[str, str]) -> ExpiresAfter | None:
    """`expires_after` of a form, as OpenAI's clients write it.

    Raises:
        InvalidRequest: it cannot be used.
    """
    given = {name: fields.get(f"expires_after[{name}]") for name in ("anchor", "seconds")}
    if given == {"anchor": None, "seconds": None}:
        return None
    try:
        return ExpiresAfter.model_validate(given)
    except ValidationError as error:
        raise InvalidRequest(
            "expires_after has an anchor, created_at, and seconds from 3600 to 2592000", param="expires_after"
        ) from error


def checked_filename(sent: str | None) -> str:
    """What is kept of a file's name.

    Raises:
        InvalidRequest: it has none.
    """
    return plain_filename(sent or "")


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
