"""`/v1/pools`: the work pools of the flow-run server, which the router obeys: pause, resume, limit."""

from typing import Literal

from fastapi import APIRouter
from pydantic import Field

from api.cold import AdminKey, ServicesDep
from api.jobs import flow_runs
from api.services import Services
from infra.errors import InvalidRequest, NotFound
from infra.prefect_shapes import WorkPoolState
from infra.types import HEAD_POOL, Frozen, Json, PoolId
from workers.pools.orders import CARD_TYPE, HEAD_TYPE, orders, seen

router = APIRouter(prefix="/v1/pools", tags=["pools"])
_LIMIT_MOST = 2**31 - 1
"""PostgreSQL's integer, which Prefect keeps a limit in."""
_TYPES = f"{HEAD_TYPE} and {CARD_TYPE}"


class WorkPoolView(Frozen):
    """One work pool."""

    name: PoolId
    object: Literal["pool"] = "pool"
    type: str
    device: str | None = Field(description="The card that a pool of an operator's own names.")
    paused: bool
    concurrency_limit: int | None = Field(description="Steps at once, over both lanes; null for no limit.")
    running: int = Field(description="Steps that run there now.")
    unusable: str | None = Field(description="Why nothing can run there.")


class WorkPoolList(Frozen):
    """All work pools, by name."""

    object: Literal["list"] = "list"
    data: list[WorkPoolView]


class PoolChange(Frozen):
    """What is to be changed of a pool; what is left out stays as it is."""

    paused: bool = False
    concurrency_limit: int | None = Field(None, ge=0, le=_LIMIT_MOST)


@router.get("", summary="List work pools")
async def show_all(services: ServicesDep, _key: AdminKey) -> WorkPoolList:
    """Every work pool; one a card, and `head`, which stands for this install."""
    return WorkPoolList(data=_views(services, await flow_runs(services).work_pools()))


@router.patch("/{pool:path}", summary="Pause, resume or limit a work pool")
async def change(pool: PoolId, wish: PoolChange, services: ServicesDep, _key: AdminKey) -> WorkPoolView:
    """The same as the switches in the flow-run UI: the router follows within five seconds."""
    changes: dict[str, Json] = {}
    if "paused" in wish.model_fields_set:
        changes["is_paused"] = wish.paused
    if "concurrency_limit" in wish.model_fields_set:
        changes["concurrency_limit"] = wish.concurrency_limit
    if not changes:
        raise InvalidRequest("say what is to be changed: 'paused' or 'concurrency_limit'", param="paused")
    api = flow_runs(services)
    await api.change_pool(pool, changes)
    for view in _views(services, await api.work_pools()):
        if view.name == pool:
            return view
    raise NotFound(f"the work pool {pool!r} has just been removed", param="pool")


def _views(services: Services, pools: list[WorkPoolState]) -> list[WorkPoolView]:
    ours = seen(pools)
    unusable = dict(orders(ours, [card.pool for card in services.fleet.pools()]).unusable)
    names = {pool.name for pool in ours}
    for pool in pools:
        if pool.name not in names:
            unusable[pool.name] = f"a pool of type {pool.type!r} is none of this install's: its own are {_TYPES}"
    return [_view(services, pool, unusable.get(pool.name)) for pool in pools]


def _view(services: Services, pool: WorkPoolState, unusable: str | None) -> WorkPoolView:
    engines = services.fleet.engines()
    return WorkPoolView(
        name=pool.name,
        type=pool.type,
        device=pool.device,
        paused=pool.is_paused,
        concurrency_limit=pool.concurrency_limit,
        running=sum(engine.in_flight for engine in engines if pool.name == HEAD_POOL or engine.pool == pool.name),
        unusable=unusable,
    )
