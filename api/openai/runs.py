"""`/v1/runs`: each key's runs, with their answers; retry and cancel them."""

import asyncio
import re
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from api.cold import ServicesDep, UserKey
from api.jobs import STORE, flow_runs
from api.media.made import MadeFiles, Receiver, origin_of
from api.openai.responses.compaction import sealed
from api.run_lookup import MOST, Found, Wanted, find, list_runs
from api.run_views import OVER, RunDetail, RunStatus, RunView, log_lines, of_flow_run, steps_of_record, steps_of_tasks
from api.services import Services
from infra.blobs import Blobs
from infra.errors import Conflict, FlowsUnavailable, NotFound
from infra.prefect_shapes import Artifact, FlowRun, Transition
from infra.requests import resolve
from infra.run_files import RunFiles
from infra.tokens import Key
from infra.types import Frozen, Json, KeyName, ModelName, RunId
from tasks.types import TaskResult

router = APIRouter(prefix="/v1/runs", tags=["runs"])

_INLINE_BYTES = 1 << 20
"""A larger answer is fetched from its own address."""
_SOON_S = 2.0
_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}(; ?charset=[a-zA-Z0-9-]{1,20})?")
_SHOWN_IN_PLACE = ("application/json", "text/plain")


class RunList(Frozen):
    """Runs, the latest first. `has_more`: ask again with `after` set to `last_id`."""

    object: str = "list"
    data: list[RunView]
    first_id: RunId | None
    last_id: RunId | None
    has_more: bool
    incomplete: str | None = None
    """Why there may be more than is shown: the flow-run server cannot be asked."""


class RunQuery(Frozen):
    """Which runs are listed."""

    limit: int = Field(20, ge=1, le=MOST, description="Runs at once.")
    after: RunId | None = Field(None, description="List runs older than this one.")
    status: RunStatus | None = Field(None, description="Only these.")
    model: ModelName | None = Field(None, description="Only this model's.")
    key: KeyName | None = Field(None, description="Only this key's; others' take an admin key.")


@router.get("", summary="List runs")
async def show_all(services: ServicesDep, key: UserKey, query: Annotated[RunQuery, Query()]) -> RunList:
    """The caller's own runs; an admin key sees all."""
    owner = query.key
    if key.scope != "admin":
        if owner not in (None, key.name):
            return RunList(data=[], first_id=None, last_id=None, has_more=False)
        owner = key.name
    page = await list_runs(services, key, Wanted(owner, query.status, query.model, query.after), query.limit)
    runs = [_for(key, run) for run in page.runs]
    return RunList(
        data=runs,
        first_id=runs[0].id if runs else None,
        last_id=runs[-1].id if runs else None,
        has_more=page.has_more,
        incomplete=page.incomplete,
    )


@router.get("/{run}", summary="Show a run")
async def show(run: RunId, services: ServicesDep, key: UserKey) -> RunDetail:
    """One run, with its steps and, where one is kept, its answer."""
    found = await find(services, key, run)
    view = _for(key, found.view)
    answer = await _kept_answer(services, view)
    if answer is not None:
        view = view.model_copy(update={"answer_url": f"/v1/runs/{view.id}/answer"})
    detail = RunDetail.model_validate(view.model_dump() | {"answer": _inline(answer)})
    return detail.model_copy(update=await _insight(services, key, found))


@router.get("/{run}/answer", summary="Fetch a run's answer", response_class=Response)
async def answer(run: RunId, services: ServicesDep, key: UserKey, request: Request) -> Response:
    """The answer as the client would have got it, with its media type. Kept of jobs and of runs that were retried."""
    return await answer_response(services, key, run, origin_of(request.scope))


async def answer_response(services: Services, key: Key, run: RunId, origin: str = "") -> Response:
    """The kept answer, for whatever page shows it; safe to open in a browser. Its files have addresses at `origin`.

    Raises:
        NotFound: no such run for this key, or no answer is kept.
        PayloadGone, InvalidRequest, DiskFull: its files are gone, or their owner has no room for them.
    """
    view = (await find(services, key, run)).view
    kept = await _kept_answer(services, view)
    if kept is None:
        why = "it is not there yet" if view.status not in OVER else "only jobs and retried runs that succeed keep one"
        raise NotFound(f"there is no answer of run {run} ({view.status}): {why}", code="no_answer")
    owner = KeyName(view.key) if view.key else key.name
    result = await sealed(services.seals, owner, TaskResult(kept[0], media_type=kept[1]))
    made = MadeFiles(services.files, services.kept.blobs)
    result = await made.turn_result(Receiver(owner, origin), result)
    media_type = result.media_type if _MEDIA_TYPE.fullmatch(result.media_type) else "application/octet-stream"
    place = "inline" if media_type.startswith(_SHOWN_IN_PLACE) else "attachment"
    headers = {
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f'{place}; filename="run-{view.id}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "private, no-store",
    }
    return Response(result.value, 200, headers, media_type)


@router.post("/{run}/retry", summary="Run it again", status_code=202)
async def retry(run: RunId, services: ServicesDep, key: UserKey) -> RunView:
    """Execute the request once more, as a job; steps that had succeeded are not run again."""
    services.limits.enter(key.name)
    try:
        return await _retry(services, key, run)
    finally:
        services.limits.leave(key.name)


@router.post("/{run}/cancel", summary="Cancel a run", status_code=202)
async def cancel(run: RunId, services: ServicesDep, key: UserKey) -> RunView:
    """End a run; its engine is free within two seconds."""
    found = await find(services, key, run)
    if found.flow_run is None and services.active.cancel(found.view.id):
        return _for(key, found.view.model_copy(update={"status": "cancelling"}))
    if found.flow_run is None or found.view.status in OVER:
        raise Conflict(f"run {run} is over: there is nothing to cancel", code="run_over")
    told = await flow_runs(services).end(found.view.id, f"Cancelled by the key {key.name!r}")
    return await _changed(services, key, found, told)


async def _retry(services: Services, key: Key, run: RunId) -> RunView:
    found = await find(services, key, run)
    if found.view.status not in OVER:
        raise Conflict(f"run {run} is {found.view.status}: cancel it, or wait for its end, before it is run again")
    flow_run = found.flow_run or await flow_runs(services).run(run)
    if flow_run is None or not flow_run.terminal:
        raise FlowsUnavailable(f"run {run} is just being recorded; try again in a moment", retry_after_s=_SOON_S)
    if flow_run.deployment_id is None:
        raise Conflict(f"run {run} was recorded without a deployment, so nobody can execute it: send its request anew")
    await asyncio.to_thread(_require_payload, services, flow_run)
    # As the UI's own button does it: without force Prefect takes no state after an end.
    why = f"Retried by the key {key.name!r}"
    told = await flow_runs(services).set_state(run, "SCHEDULED", "AwaitingRetry", why, force=True)
    return await _changed(services, key, found, told)


async def _changed(services: Services, key: Key, found: Found, told: Transition) -> RunView:
    """The run after a wish for a state of it."""
    api, run = flow_runs(services), found.view.id
    if not told.accepted:
        raise Conflict(f"run {run} could not be changed: {told.reason or 'it has just changed by itself'}")
    flow_run = await api.run(run)
    if flow_run is None:
        raise NotFound(f"run {run} has just been removed", param="run", code="run_not_found")
    return _for(key, of_flow_run(flow_run, found.view.flow))


def _require_payload(services: Services, run: FlowRun) -> None:
    """Raises PayloadGone where the request of the run is not kept."""
    parameter = run.parameters.get("request")
    stores = [Blobs(services.settings.at(name)) for name in (STORE, "payloads")]
    resolve(parameter if isinstance(parameter, dict) else {"$gone": "it was recorded without its request"}, stores)


async def _kept_answer(services: Services, view: RunView) -> tuple[bytes, str] | None:
    if view.status != "completed":
        return None
    return await asyncio.to_thread(lambda: RunFiles(services.settings.home).answer(view.id))


def _inline(kept: tuple[bytes, str] | None) -> Json:
    if kept is None or not kept[1].startswith("application/json") or len(kept[0]) > _INLINE_BYTES:
        return None
    try:
        parsed: Json = orjson.loads(kept[0])
    except orjson.JSONDecodeError:  # whoever fetches it sees what it is
        return None
    return parsed


async def _insight(services: Services, key: Key, found: Found) -> dict[str, object]:
    """Progress, steps, report and log: what memory has, and what Prefect has besides."""
    more: dict[str, object] = {"progress": await services.progress.of_run(found.view.id)}
    if found.flow_run is not None:
        api, run = flow_runs(services), found.flow_run.id
        tasks, artifacts = await asyncio.gather(api.task_runs(run), api.artifacts(run))
        more["steps"] = steps_of_tasks(tasks)
        more["report"] = _latest_report(artifacts)
        if key.scope == "admin":
            more["log"] = log_lines(await api.logs(run))
    if found.record is not None:
        more["steps"] = steps_of_record(found.record)
    return more


def _latest_report(artifacts: list[Artifact]) -> str | None:
    reports = [artifact for artifact in artifacts if artifact.type == "markdown"]
    latest = max(reports, key=lambda artifact: artifact.created, default=None)
    return latest.data if latest is not None and isinstance(latest.data, str) else None


def _for(key: Key, view: RunView) -> RunView:
    """The run as this key sees it."""
    return view if key.scope == "admin" else view.model_copy(update={"key": None})
