"""The job lane: a request that nobody waits for becomes a flow run, which the worker process executes."""

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Final

from api.asgi import Exchange
from api.errors import Headers
from api.run import run_headers
from api.run_views import of_flow_run
from api.services import Services
from infra.blobs import Blobs
from infra.errors import Conflict, FlowsUnavailable, InvalidRequest
from infra.prefect_api import PrefectApi
from infra.prefect_shapes import FlowRun
from infra.requests import INLINE_BYTES, Parameter, make_parameter
from infra.settings import Settings
from infra.types import Json, KeyName, ModelName, RunId

LANE: Final = b"x-coderai-lane"
STORE: Final = "jobs"
"""The blobs of the job lane, below the install's folder."""
_LOOK_AGAIN_S: Final = 2
_OFF_S: Final = 60.0
_KEY_CHARS: Final = 255


@dataclass(frozen=True, slots=True)
class Job:
    """A checked request: `body` as the client sent it, `stream` whether it wants its answer streamed."""

    flow: str
    model: ModelName
    key: KeyName
    body: dict[str, Json]
    stream: bool


def is_job(lane: str) -> bool:
    """Whether this lane is the job lane.

    Raises:
        InvalidRequest: there is no such lane.
    """
    if lane not in ("interactive", "job"):
        raise InvalidRequest(
            f"X-Coderai-Lane is 'interactive' (the default: the answer comes at once) or 'job' (it is fetched later), "
            f"not {lane[:50]!r}",
            param="X-Coderai-Lane",
        )
    return lane == "job"


async def submit(services: Services, exchange: Exchange, job: Job) -> RunId:
    """Make the flow run and answer 202 with its address; returns its id.

    Raises:
        InvalidRequest: what a job cannot be.
        Conflict: its Idempotency-Key was used for another request.
        FlowsUnavailable: no flow run can be made now.
        DiskFull: there is no room to keep the request.
    """
    if job.stream:
        raise InvalidRequest(
            "a job's answer is fetched when it is whole: leave out 'stream', or leave out X-Coderai-Lane",
            param="stream",
        )
    run = await make_run(services, exchange, job)
    view = of_flow_run(run, job.flow).model_copy(update={"key": None})
    headers: Headers = [
        (b"content-type", b"application/json"),
        (b"location", f"/v1/runs/{run.id}".encode()),
        (b"retry-after", str(_LOOK_AGAIN_S).encode()),
    ]
    await exchange.answer(202, view.model_dump_json().encode(), headers + run_headers(run.id, ""))
    return run.id


async def make_run(services: Services, exchange: Exchange, job: Job, *tags: str) -> FlowRun:
    """The flow run of a job, with these tags too; for an Idempotency-Key that was used before, that run.

    Raises:
        InvalidRequest, Conflict, FlowsUnavailable, DiskFull: as `submit`.
    """
    api = flow_runs(services)
    idempotency_key = _scoped(exchange.header(b"idempotency-key"), job.key)
    parameter = await asyncio.to_thread(_kept, services.settings, job.body)
    tagged = [f"model:{job.model}", f"key:{job.key}", "lane:job", *tags]
    run = await api.create_run(f"{job.flow}/{job.flow}", {"request": parameter}, tagged, idempotency_key)
    if run.parameters.get("request") != parameter:
        raise used_for_another(run.id)
    return run


def used_for_another(run: RunId) -> Conflict:
    """An Idempotency-Key that was used for another request, which became `run`."""
    return Conflict(
        f"this Idempotency-Key was used for another request, run {run}: take a new one", param="Idempotency-Key"
    )


async def end_run(services: Services, run: RunId, why: str) -> None:
    """Have a job ended; one that is over, or not kept any more, is left as it is.

    Raises:
        FlowsUnavailable: the flow-run server does not answer.
    """
    api = flow_runs(services)
    found = await api.run(run)
    if found is None or found.terminal:
        return
    await api.end(run, why)


def flow_runs(services: Services) -> PrefectApi:
    """Where flow runs are.

    Raises:
        FlowsUnavailable: nowhere, by the settings.
    """
    if services.prefect_api is None:
        raise FlowsUnavailable(
            "this server keeps no flow runs: flows.server is 'off' in its settings", retry_after_s=_OFF_S
        )
    return services.prefect_api


def _kept(settings: Settings, body: dict[str, Json]) -> Parameter:
    """The parameter of the flow run; the request is in it where everybody with the UI may read it, else in a blob."""
    inline_bytes = INLINE_BYTES if settings.payloads == "all" else -1
    return make_parameter(body, Blobs(settings.at(STORE)), inline_bytes=inline_bytes)


def _scoped(idempotency_key: str | None, key: KeyName) -> str | None:
    """One key's idempotency keys are not another's."""
    if idempotency_key is None:
        return None
    if not 0 < len(idempotency_key) <= _KEY_CHARS:
        raise InvalidRequest(f"Idempotency-Key is 1 to {_KEY_CHARS} characters long", param="Idempotency-Key")
    return hashlib.sha256(f"{key}\n{idempotency_key}".encode()).hexdigest()
