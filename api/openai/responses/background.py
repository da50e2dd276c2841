"""Responses that are made in the background: each is stored at once, and made by a job, which its client may follow."""

import asyncio
from typing import Final

import orjson

from api.asgi import Exchange
from api.errors import Headers
from api.jobs import Job, end_run, flow_runs, make_run, used_for_another
from api.openai.responses import store
from api.openai.responses.follow import Follower, followed
from api.openai.responses.items import kept_items
from api.run import run_headers
from api.services import Services
from flows.plan import Plan
from infra.response_events import ResponseEvents
from infra.response_rows import RUN_TAG, UNDER_WAY, BackgroundResponses
from infra.run_files import RunFiles
from infra.tokens import Key
from infra.types import Json, ResponseId, RunId
from tasks.responses.answer import begun

Body = dict[str, Json]

_OURS: Final = frozenset({"background", "store", "stream", "stream_options"})
"""Fields that are the front's business, not the job's."""


async def begin(services: Services, exchange: Exchange, key: Key, body: Body, plan: Plan) -> RunId:
    """Store the response that the checked request asks for, have a job make it, and answer with it as it stands, or
    with its events as they come; gives the job's run.

    Raises:
        InvalidRequest, Conflict: its Idempotency-Key is none, or was used for another request.
        FlowsUnavailable: no flow run can be made now.
        DiskFull, DatabaseUnusable: it cannot be stored.
    """
    flow_runs(services)
    skeleton = plan.steps[0].inputs["response"]
    assert isinstance(skeleton, dict)
    response = {**begun(skeleton), "status": "queued"}
    asked = {name: value for name, value in body.items() if name not in _OURS}
    job = Job(plan.flow, plan.model, key.name, asked, stream=False)
    made, run = await _queued(services, exchange, job, response, kept_items(body.get("input")))
    stored = await asyncio.to_thread(store.get, services.database, store.Whose.of(key), made)
    if body.get("stream") is True:
        exchange.answered, exchange.status = True, 200
        stream = followed(Follower(services, store.Whose.of(key), made), run)
        await stream(exchange.scope, exchange.receive, exchange.send)
    else:
        headers: Headers = [(b"content-type", b"application/json"), *run_headers(run, "")]
        await exchange.answer(200, orjson.dumps(stored.shown), headers)
    return run


async def cancel(services: Services, key: Key, response: ResponseId) -> store.Stored:
    """The response, ended unless it is over.

    Raises:
        NotFound: there is none, or it is another key's.
        FlowsUnavailable: the flow-run server does not answer; nothing has changed.
    """
    whose = store.Whose.of(key)
    stored = await asyncio.to_thread(store.get, services.database, whose, response)
    if stored.status in UNDER_WAY:
        if stored.run is not None:
            await end_run(services, stored.run, f"Cancelled by the key {key.name!r}")
        rows, events = BackgroundResponses(services.database), ResponseEvents(services.settings.home)
        await asyncio.to_thread(lambda: rows.end(response, "cancelled", beside_bytes=events.size_bytes(response)))
    return await asyncio.to_thread(store.get, services.database, whose, response)


async def remove(services: Services, key: Key, response: ResponseId) -> None:
    """Delete a response; one that is being made is ended before. What was told of it goes, too, and what its run has
    kept.

    Raises:
        NotFound, FlowsUnavailable: as `cancel`.
    """
    stored = await cancel(services, key, response)
    await asyncio.to_thread(store.remove, services.database, store.Whose.of(key), response)
    run, home = stored.run, services.settings.home
    await asyncio.to_thread(lambda: ResponseEvents(home).forget(response))
    if run is not None:
        await asyncio.to_thread(lambda: RunFiles(home).forget(run))


async def _queued(
    services: Services, exchange: Exchange, job: Job, response: Body, given: list[Body]
) -> tuple[ResponseId, RunId]:
    """The response and its run; for an Idempotency-Key that was used before, those of then.

    It is stored before there is a run, which then finds it, however soon it begins.
    """
    made, rows = ResponseId(str(response["id"])), BackgroundResponses(services.database)
    await asyncio.to_thread(store.keep, services.database, job.key, response, given)
    try:
        run = await make_run(services, exchange, job, f"{RUN_TAG}:{made}")
    except BaseException:
        await asyncio.to_thread(rows.forget, made)
        raise
    first = ResponseId(run.tag(RUN_TAG) or "")
    if first != made:
        await asyncio.to_thread(rows.forget, made)
        if not first:
            raise used_for_another(run.id)
        if not await asyncio.to_thread(rows.knows, first):  # its sender was told that it could not be begun
            await asyncio.to_thread(store.keep, services.database, job.key, response | {"id": first}, given)
    await asyncio.to_thread(rows.queued, first, run.id)
    return first, run.id
