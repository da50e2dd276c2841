"""`/v1/uploads`: files that come in parts. The parts themselves come by `api/openai/file_intake.py`."""

from fastapi import APIRouter
from pydantic import Field

from api.cold import ServicesDep, UserKey
from api.openai.file_shapes import ExpiresAfter, Purpose, UploadObject, checked_filename, lasts_s, upload_object
from api.openai.files import owner
from infra.errors import PayloadTooLarge
from infra.file_rows import NewFile
from infra.types import Frozen, PartId, UploadId

router = APIRouter(prefix="/v1/uploads", tags=["files"])


class NewUpload(Frozen):
    """A file that is to come in parts."""

    filename: str = Field(max_length=4096)
    purpose: Purpose
    bytes: int = Field(ge=0, description="What all parts will have together.")
    mime_type: str = Field(min_length=1, max_length=100)
    expires_after: ExpiresAfter | None = None


class Completion(Frozen):
    """The parts of a file, in its order."""

    part_ids: list[PartId] = Field(max_length=10_000)
    md5: str | None = Field(None, max_length=64, description="Of the whole file, in hex digits.")


@router.post("", summary="Begin an upload", response_model_exclude_none=True)
async def create(body: NewUpload, services: ServicesDep, key: UserKey) -> UploadObject:
    """Begin a file that comes in parts of up to 64 MiB, within an hour."""
    most = services.settings.files.max_upload_mb
    if body.bytes > most << 20:
        raise PayloadTooLarge(
            f"the file is over the limit of {most} MiB: raise files.max_upload_mb", param="bytes", code="file_too_large"
        )
    lasts = lasts_s(body.purpose, body.expires_after)
    new = NewFile(key.name, checked_filename(body.filename), body.purpose, body.mime_type, lasts)
    return upload_object(await services.files.run(lambda: services.files.uploads.create(new, body.bytes)))


@router.post("/{upload}/complete", summary="Make one file of an upload's parts", response_model_exclude_none=True)
async def complete(upload: UploadId, body: Completion, services: ServicesDep, key: UserKey) -> UploadObject:
    """Join the parts in the order that is given; the file is there when this answers."""
    uploads = services.files.uploads
    return upload_object(
        await services.files.run(lambda: uploads.complete(upload, owner(key), body.part_ids, body.md5))
    )


@router.post("/{upload}/cancel", summary="Give an upload up", response_model_exclude_none=True)
async def cancel(upload: UploadId, services: ServicesDep, key: UserKey) -> UploadObject:
    """Drop the parts; no more can be added."""
    return upload_object(await services.files.run(lambda: services.files.uploads.cancel(upload, owner(key))))
