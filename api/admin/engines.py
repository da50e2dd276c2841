"""Operators' routes: engines and pools as they are now; load and unload models."""

from dataclasses import asdict
from typing import Literal

from fastapi import APIRouter

from api.cold import AdminKey, ServicesDep
from infra.types import Frozen

router = APIRouter(prefix="/admin/api", tags=["admin"])


class ModelName(Frozen):
    """Names a model."""

    model: str


class Engine(Frozen):
    """One engine."""

    id: str
    model: str
    pool: str
    state: Literal["ready", "loading", "down", "quarantined"]
    reason: str
    slots: int
    in_flight: int
    waiting: int
    incarnation: int
    memory_bytes: int
    local: bool


class Pool(Frozen):
    """One card."""

    pool: str
    backend: str
    total_bytes: int
    free_bytes: int
    reclaimable_bytes: int
    reserve_bytes: int
    unusable: str | None
    paused: str | None


class Cluster(Frozen):
    """Everything that requests can run on."""

    pools: list[Pool]
    engines: list[Engine]


class Unloaded(Frozen):
    """How many engines let go of the model."""

    model: str
    engines: int


@router.get("/engines", summary="Pools and engines")
async def list_engines(services: ServicesDep, _key: AdminKey) -> Cluster:
    """Every card and every engine, with what each is doing."""
    fleet = services.fleet
    return Cluster(
        pools=[Pool(**asdict(pool)) for pool in fleet.pools()],
        engines=[
            Engine(
                id=engine.id,
                model=engine.model,
                pool=engine.pool,
                state=engine.told_state,
                reason=engine.reason,
                slots=engine.slots,
                in_flight=engine.in_flight,
                waiting=fleet.waiting(engine.model),
                incarnation=engine.incarnation,
                memory_bytes=engine.memory_bytes,
                local=engine.local,
            )
            for engine in fleet.engines()
        ],
    )


@router.post("/model-load", summary="Load a model")
async def load_model(named: ModelName, services: ServicesDep, _key: AdminKey) -> dict[str, str]:
    """Load it as a request would, and answer when it serves."""
    engine = await services.fleet.load(services.shelf.catalogue.get(named.model))
    return {"model": engine.model, "engine": engine.id, "state": engine.state}


@router.post("/model-unload", summary="Unload a model")
async def unload_model(named: ModelName, services: ServicesDep, _key: AdminKey) -> Unloaded:
    """Take it out of memory; refused while it answers requests."""
    entry = services.shelf.catalogue.get(named.model)
    return Unloaded(model=entry.name, engines=await services.fleet.unload(entry.name))
