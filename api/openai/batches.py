"""`/v1/batches`: many requests as one job. A batch is one flow run, which the worker process carries out."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from pydantic import Field, StringConstraints

from api.batches import begin, cancel_run
from api.cold import ServicesDep, UserKey
from api.openai.file_shapes import ExpiresAfter
from api.openai.files import owner
from api.openai.resources import PATHS
from infra.batch_rows import Batch, BatchProblem, NewBatch, Status
from infra.batch_usage import BatchUsage
from infra.errors import InvalidRequest
from infra.types import BatchId, FileId, Frozen

router = APIRouter(prefix="/v1/batches", tags=["batches"])

_BATCHED: Final = {path: flow for path, flow in PATHS.items() if flow not in ("compact", "input_tokens")}
"""What a batch may be for. A summary is sealed on its way to its client, and a batch's answers go into a file; to count
tokens is no work for one."""
Label = Annotated[str, StringConstraints(max_length=512)]


class BatchRequest(Frozen):
    """What is to be done: the requests of a file, all for one endpoint."""

    input_file_id: FileId = Field(description="A file of JSON lines, sent with the purpose batch.")
    endpoint: str = Field(max_length=100, description="The path that every request is for.")
    completion_window: Literal["24h"]
    metadata: dict[Annotated[str, StringConstraints(max_length=64)], Label] | None = Field(None, max_length=16)
    output_expires_after: ExpiresAfter | None = None


class RequestCounts(Frozen):
    """How far it is."""

    total: int
    completed: int
    failed: int


class BatchErrors(Frozen):
    """Why it was refused."""

    object: Literal["list"] = "list"
    data: list[BatchProblem]


class BatchObject(Frozen):
    """OpenAI's batch object; times are seconds since the epoch, and `run` is the flow run (`/v1/runs/{run}`)."""

    id: BatchId
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None = None
    errors: BatchErrors | None = None
    input_file_id: FileId
    completion_window: Literal["24h"] = "24h"
    status: Status
    output_file_id: FileId | None = None
    error_file_id: FileId | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts
    usage: BatchUsage | None = None
    metadata: dict[str, str] | None = None
    run: str | None = None


class BatchList(Frozen):
    """Batches, the newest first. `has_more`: ask again with `after` set to `last_id`."""

    object: Literal["list"] = "list"
    data: list[BatchObject]
    first_id: BatchId | None = None
    last_id: BatchId | None = None
    has_more: bool


class BatchQuery(Frozen):
    """Which batches are listed."""

    limit: int = Field(20, ge=1, le=100, description="Batches at once.")
    after: BatchId | None = Field(None, max_length=80, description="List batches older than this one.")


@router.post("", summary="Begin a batch", response_model_exclude_none=True)
async def create(body: BatchRequest, services: ServicesDep, key: UserKey) -> BatchObject:
    """Begin to carry out the requests of a file; look how far it is with GET."""
    flow = _BATCHED.get(body.endpoint)
    if flow is None:
        raise InvalidRequest(f"a batch is for one of {', '.join(_BATCHED)}, not {body.endpoint!r}", param="endpoint")
    lasts = None if body.output_expires_after is None else body.output_expires_after.seconds
    new = NewBatch(
        key=key.name,
        flow=flow,
        endpoint=body.endpoint,
        input_file=body.input_file_id,
        output_lasts_s=lasts,
        labels=body.metadata or {},
    )
    return _object(await begin(services, key, new))


@router.get("", summary="List batches", response_model_exclude_none=True)
async def show_all(services: ServicesDep, key: UserKey, query: Annotated[BatchQuery, Query()]) -> BatchList:
    """The caller's own batches; an admin key sees all."""
    batches = services.files.batches
    found, more = await services.files.run(lambda: batches.page(owner(key), query.after, query.limit))
    return BatchList(
        data=[_object(batch) for batch in found],
        first_id=found[0].id if found else None,
        last_id=found[-1].id if found else None,
        has_more=more,
    )


@router.get("/{batch}", summary="Show a batch", response_model_exclude_none=True)
async def show(batch: BatchId, services: ServicesDep, key: UserKey) -> BatchObject:
    """One batch, and how far it is."""
    return _object(await services.files.run(lambda: services.files.batches.get(batch, owner(key))))


@router.post("/{batch}/cancel", summary="Cancel a batch", response_model_exclude_none=True)
async def cancel(batch: BatchId, services: ServicesDep, key: UserKey) -> BatchObject:
    """End a batch; what is done by then is in its files."""
    found = await services.files.run(lambda: services.files.batches.cancel(batch, owner(key)))
    await cancel_run(services, found, f"Cancelled by the key {key.name!r}")
    return _object(found)


def _object(batch: Batch) -> BatchObject:
    return BatchObject(
        id=batch.id,
        endpoint=batch.endpoint,
        model=batch.model,
        errors=BatchErrors(data=batch.errors) if batch.errors else None,
        input_file_id=batch.input_file,
        status=batch.status,
        output_file_id=batch.output_file,
        error_file_id=batch.error_file,
        created_at=int(batch.created_at.timestamp()),
        expires_at=int(batch.expires_at.timestamp()),
        request_counts=RequestCounts(total=batch.total, completed=batch.completed, failed=batch.failed),
        usage=batch.usage,
        metadata=batch.labels or None,
        run=batch.run,
        **batch.moments,
    )
