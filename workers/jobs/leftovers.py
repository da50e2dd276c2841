"""Runs that an earlier life of this process left behind: Prefect itself would show them as running for ever."""

import logging
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Cancelled, Crashed, Scheduled

log = logging.getLogger(__name__)

WORKER_PREFIX: Final = "coderai-"
"""Every worker of an install is called so, followed by its pool."""
FRONT_PID: Final = "front:"
"""What the recorder puts before the front that executes a run."""
UNFINISHED: Final = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)
_PAGE: Final = 200


def nobodys() -> State[Any]:
    """The state of a run that is to end and that nobody executes."""
    return Cancelled(message="it was cancelled while no worker executed it")


def worker_name(pool: str) -> str:
    """The name of the worker of a pool; the same in every life, so that the pool's page lists it once."""
    return f"{WORKER_PREFIX}{pool}"


def end_of(run: FlowRun, live: Collection[UUID], *, first: bool = True) -> State[Any] | None:
    """The state that a run gets which nobody executes; None if it is somebody's.

    `first`: this process has not taken a run yet; else one that is handed out just now is not to be mistaken for one
    of an earlier life.
    """
    if run.id in live or run.state is None:
        return None
    pid = run.infrastructure_pid or ""
    ours = pid.startswith(WORKER_PREFIX)
    match run.state.type:
        case StateType.PENDING if not ours and first:  # handed out, not begun; fronts hand nothing out
            return Scheduled(
                scheduled_time=datetime.now(UTC), message="the worker process ended before it had begun this run"
            )
        case StateType.PENDING | StateType.RUNNING if ours:
            return Crashed(
                message="the worker process ended while it executed this run; retry it, and it goes on where it was"
            )
        case StateType.CANCELLING if ours or not pid:
            return nobodys()
    return None


async def sweep(client: PrefectClient, pools: Collection[str], live: Collection[UUID], *, first: bool) -> int:
    """Give every run that was left behind its end; `pools` are those of this install. Returns how many there were.

    Raises:
        httpx.HTTPError: Prefect does not answer.
    """
    settled = 0
    for run in await unfinished(client, pools):
        state = end_of(run, live, first=first)
        if state is not None:
            log.warning("run %s was left %s: %s", run.id, run.state_name, state.message)
            await client.set_flow_run_state(run.id, state, force=True)
            settled += 1
    return settled


async def unfinished(
    client: PrefectClient, pools: Collection[str], states: Collection[StateType] = UNFINISHED
) -> list[FlowRun]:
    """Runs of these pools that are in one of the states."""
    found: list[FlowRun] = []
    while True:
        page = await client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[*states])),
            ),
            work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[*pools])),
            sort=FlowRunSort.ID_DESC,
            limit=_PAGE,
            offset=len(found),
        )
        found += page
        if len(page) < _PAGE:
            return found


async def halted(client: PrefectClient, live: Collection[UUID]) -> list[FlowRun]:
    """Those of the runs under way that are suspended or cancelled.

    Raises:
        httpx.HTTPError: Prefect does not answer.
    """
    if not live:
        return []
    states = FlowRunFilterStateType(any_=[StateType.PAUSED, StateType.CANCELLED])
    return await client.read_flow_runs(
        flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[*live]), state=FlowRunFilterState(type=states))
    )
