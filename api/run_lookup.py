"""Finding runs: in this front's memory, and in Prefect, which has a run a moment after its end. A key sees its own."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from api.run_views import STATES, RunStatus, RunView, of_flow_run, of_record
from api.services import Services
from infra.errors import FlowsUnavailable, NotFound
from infra.prefect_api import PrefectApi
from infra.prefect_child.rows import FRONT_PID
from infra.prefect_shapes import FlowRun, RunFilter
from infra.records import RunRecord
from infra.tokens import Key
from infra.types import KeyName, ModelName, RunId

MOST = 100
"""Runs that are listed at once."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs are listed: those of `key` (of every key if None), older than the run `after`."""

    key: KeyName | None
    status: RunStatus | None = None
    model: ModelName | None = None
    after: RunId | None = None


class Found(NamedTuple):
    """One run: what memory and Prefect have of it; at least one of them has it."""

    view: RunView
    record: RunRecord | None
    flow_run: FlowRun | None


class Page(NamedTuple):
    """Runs, the latest first; `incomplete` says why there may be more."""

    runs: list[RunView]
    has_more: bool
    incomplete: str | None


async def find(services: Services, key: Key, run: RunId) -> Found:
    """A run that `key` may see.

    Raises:
        NotFound: there is none, or it is another key's.
        FlowsUnavailable: it is not in memory, and Prefect cannot be asked.
    """
    found = await _found(services, run)
    if found is None or not sees(key, found.view.key):
        raise NotFound(f"there is no run {run!r}; GET /v1/runs lists yours", param="run", code="run_not_found")
    return found


def sees(key: Key, owner: str | None) -> bool:
    """Whether the key may see what belongs to `owner`."""
    return key.scope == "admin" or key.name == owner


async def list_runs(services: Services, key: Key, wanted: Wanted, limit: int) -> Page:
    """Up to `limit` runs.

    Raises:
        NotFound: there is no run `after` that the key may see.
    """
    before = None
    if wanted.after is not None:
        last = (await find(services, key, wanted.after)).view
        wanted, before = replace(wanted, after=last.id), _began(last)
    memory = [view for view in map(of_record, services.active.all()) if _fits(view, wanted, before)]
    memory = sorted(memory, key=_age)[: limit + 1]
    merged, incomplete = memory, None
    if services.prefect_api is not None:
        try:
            merged = await _merged(services, services.prefect_api, memory, wanted, before, limit)
        except FlowsUnavailable as error:
            incomplete = error.message
    return Page(merged[:limit], len(merged) > limit, incomplete)


async def _merged(
    services: Services, api: PrefectApi, memory: list[RunView], wanted: Wanted, before: float | None, limit: int
) -> list[RunView]:
    """The runs of memory and those that Prefect has, each once."""
    recorded = await _recorded(services, api, wanted, before, limit)
    alone = [view for view in memory if view.id not in recorded]
    if alone:
        known = await api.runs(RunFilter(ids=tuple(view.id for view in alone)))
        theirs = {run.id for run in known if _ours(services, run) is None}
        alone = [view for view in alone if view.id not in theirs]
    return sorted([*alone, *(view for view in recorded.values() if _fits(view, wanted, before))], key=_age)


async def _found(services: Services, run: RunId) -> Found | None:
    running = services.active.find(run)
    if running is not None:
        return Found(of_record(running), running, None)
    recent, api = services.active.recent(run), services.prefect_api
    try:
        flow_run = None if api is None else await api.run(run)
    except FlowsUnavailable:
        if recent is None:
            raise
        flow_run = None
    if recent is not None and (flow_run is None or _behind(flow_run)):
        return Found(of_record(recent), recent, None)
    if flow_run is None or api is None:
        return None
    view = await _view(api, flow_run)
    if recent is None or flow_run.run_count > 1:  # what memory has is not the last try
        return Found(view, None, flow_run)
    return Found(view, recent, flow_run)


async def _recorded(
    services: Services, api: PrefectApi, wanted: Wanted, before: float | None, limit: int
) -> dict[RunId, RunView]:
    """What Prefect has; one run more than the limit, and the one that the page follows."""
    tags = [f"{kind}:{value}" for kind, value in (("key", wanted.key), ("model", wanted.model)) if value is not None]
    asked = RunFilter(
        tags=tuple(tags),
        states=STATES[wanted.status] if wanted.status else (),
        before=None if before is None else datetime.fromtimestamp(before, UTC),
    )
    views: dict[RunId, RunView] = {}
    for run in await api.runs(asked, limit + 2):
        record = _ours(services, run)
        views[run.id] = await _view(api, run) if record is None else of_record(record)
    return views


def _ours(services: Services, run: FlowRun) -> RunRecord | None:
    """The record in memory, where that knows more than Prefect does."""
    return services.active.find(run.id) or (services.active.recent(run.id) if _behind(run) else None)


async def _view(api: PrefectApi, run: FlowRun) -> RunView:
    return of_flow_run(run, await api.flow_name(run.flow_id) or run.name)


def _behind(run: FlowRun) -> bool:
    """Whether this is what was recorded of a run while a front executed it: memory may know its end already."""
    under_way = run.state is not None and run.state.type in ("RUNNING", "CANCELLING")
    return under_way and run.run_count <= 1 and (run.infrastructure_pid or "").startswith(FRONT_PID)


def _fits(view: RunView, wanted: Wanted, before: float | None) -> bool:
    asked: Iterable[tuple[object, object]] = (
        (wanted.key, view.key),
        (wanted.status, view.status),
        (wanted.model, view.model),
    )
    if any(wish is not None and wish != is_ for wish, is_ in asked):
        return False
    return view.id != wanted.after and (before is None or _began(view) <= before)


def _age(view: RunView) -> tuple[float, str]:
    return (-_began(view), view.id)


def _began(view: RunView) -> float:
    return view.started_at or view.created_at
