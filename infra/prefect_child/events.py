"""The events of runs that ended badly, as Prefect itself would have sent them, so that its automations fire.

Rows that are written directly pass Prefect's own instrumentation by. `prefect.server.models.events` is what this
follows, with the names at hand instead of six queries a run.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from prefect.server.database import PrefectDBInterface
from prefect.server.events.clients import PrefectServerEventsClient
from prefect.server.events.schemas.events import Event

from infra.prefect_child.lookup import Named, Snapshot
from infra.prefect_child.rows import Row

_LONGEST_MESSAGE = 10_000
BAD_ENDS = frozenset({"FAILED", "CRASHED"})


def bad_end(run: Row, state: Row, snapshot: Snapshot) -> Event:
    """The event of a flow run row's way into `state`; its id is the state's, so that it is known again."""
    message = (state["message"] or "")[:_LONGEST_MESSAGE]
    return Event(
        id=state["id"],
        occurred=state["timestamp"],
        event=f"prefect.flow-run.{state['name']}",
        resource={
            "prefect.resource.id": f"prefect.flow-run.{run['id']}",
            "prefect.resource.name": run["name"],
            "prefect.run-count": str(run["run_count"]),
            "prefect.state-message": message,
            "prefect.state-name": state["name"],
            "prefect.state-timestamp": _iso(state["timestamp"]),
            "prefect.state-type": state["type"],
        },
        related=list(_related(run, snapshot)),
        payload={
            "intended": {"from": "RUNNING", "to": state["type"]},
            "initial_state": {"type": "RUNNING", "name": "Running"},
            "validated_state": _state(state, message),
        },
    )


async def untold(db: PrefectDBInterface, events: Sequence[Event]) -> list[Event]:
    """Those whose state its run still has and that are not in the event feed, so that a line which comes again says
    nothing. (What was sent in the last seconds may not be there yet; Prefect's publisher drops an id it has just seen.)
    """
    if not events:
        return []
    state = db.FlowRun.state_id
    told = sa.select(db.Event.id).where(db.Event.id == state).exists()
    async with db.session_context() as session:
        wanted = sa.select(state).where(state.in_([event.id for event in events]), ~told)
        ids = set(await session.scalars(wanted))
    return [event for event in events if event.id in ids]


async def send(events: Iterable[Event]) -> None:
    """Hand the events to Prefect's own feed and automations."""
    async with PrefectServerEventsClient() as client:
        for event in events:
            await client.emit(event)


def _related(run: Row, snapshot: Snapshot) -> Iterator[dict[str, str]]:
    tags: set[str] = set(run["tags"])
    for kind, thing in _things(run, snapshot):
        tags |= set(thing.tags)
        yield _resource(kind, thing)
    queue = _by_id(run["work_queue_id"], [found.queue for found in snapshot.queues.values()])
    if queue is not None:
        found = next(one for one in snapshot.queues.values() if one.queue.id == queue.id)
        yield _resource("work-queue", queue)
        yield _resource("work-pool", found.pool) | {"prefect.work-pool.type": found.pool_type}
    for tag in sorted(tags):
        yield {"prefect.resource.id": f"prefect.tag.{tag}", "prefect.resource.role": "tag"}


def _things(run: Row, snapshot: Snapshot) -> Iterator[tuple[str, Named]]:
    for kind, column, known in (
        ("flow", "flow_id", snapshot.flows),
        ("deployment", "deployment_id", snapshot.deployments),
    ):
        thing = _by_id(run[column], known.values())
        if thing is not None:
            yield kind, thing


def _by_id(wanted: UUID | None, things: Iterable[Named]) -> Named | None:
    return next((thing for thing in things if thing.id == wanted), None)


def _resource(kind: str, thing: Named) -> dict[str, str]:
    return {
        "prefect.resource.id": f"prefect.{kind}.{thing.id}",
        "prefect.resource.role": kind,
        "prefect.resource.name": thing.name,
    }


def _state(state: Row, message: str) -> dict[str, Any]:
    described = {"type": state["type"], "name": state["name"]}
    return described | {"message": message} if message else described


def _iso(moment: datetime) -> str:
    return moment.isoformat()
