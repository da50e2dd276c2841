"""`/v1/files`: what is kept for a key, and its bytes. New ones come by `api/openai/file_intake.py`."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse
from pydantic import Field

from api.cold import ServicesDep, UserKey
from api.file_serving import content
from api.openai.file_shapes import FileDeleted, FileList, FileObject, file_object
from infra.errors import InvalidRequest
from infra.file_names import is_file_id
from infra.file_rows import Wanted
from infra.tokens import Key
from infra.types import FileId, Frozen, KeyName

router = APIRouter(prefix="/v1/files", tags=["files"])

MOST = 10_000
"""Files that are listed at once."""


class FileQuery(Frozen):
    """Which files are listed."""

    limit: int = Field(MOST, ge=1, le=MOST, description="Files at once.")
    after: FileId | None = Field(None, description="List the files beyond this one.")
    order: Literal["asc", "desc"] = Field("desc", description="By age: asc gives the oldest first.")
    purpose: str | None = Field(None, max_length=32, description="Only these.")


@router.get("", summary="List files", response_model_exclude_none=True)
async def show_all(services: ServicesDep, key: UserKey, query: Annotated[FileQuery, Query()]) -> FileList:
    """The caller's own files; an admin key sees all."""
    if query.after is not None and not is_file_id(query.after):
        raise InvalidRequest("after is the id of a file, such as the last_id of the list before", param="after")
    wanted = Wanted(owner(key), query.purpose, query.after, query.order, query.limit)
    files, more = await services.files.run(lambda: services.files.files.page(wanted))
    return FileList(
        data=[file_object(file) for file in files],
        first_id=files[0].id if files else None,
        last_id=files[-1].id if files else None,
        has_more=more,
    )


@router.get("/{file}", summary="Show a file", response_model_exclude_none=True)
async def show(file: FileId, services: ServicesDep, key: UserKey) -> FileObject:
    """One file."""
    return file_object(await services.files.run(lambda: services.files.files.get(file, owner(key))))


@router.delete("/{file}", summary="Delete a file")
async def delete(file: FileId, services: ServicesDep, key: UserKey) -> FileDeleted:
    """Remove a file, and its bytes with the last file that has them."""
    await services.files.run(lambda: services.files.files.delete(file, owner(key)))
    return FileDeleted(id=file, deleted=True)


@router.get("/{file}/content", summary="Fetch a file's bytes", response_class=FileResponse)
async def show_content(file: FileId, services: ServicesDep, key: UserKey) -> FileResponse:
    """The bytes as they were sent; ranges are understood."""
    found = await services.files.run(lambda: services.files.files.get(file, owner(key)))
    return content(found, services.files.files.store)


def owner(key: Key) -> KeyName | None:
    """Whose files the key may see; None: everybody's."""
    return None if key.scope == "admin" else key.name
