"""`/v1/models`: what this install offers, with each model's capabilities."""

import asyncio

from fastapi import APIRouter

from api.cold import AdminKey, ServicesDep, UserKey
from infra.types import Frozen
from workers.catalogue_rows import ModelRows
from workers.types import Capability, ModelEntry

router = APIRouter(prefix="/v1/models", tags=["models"])

_CREATED = 1_700_000_000
"""Models carry no date of birth; clients need an integer."""


class Model(Frozen):
    """OpenAI's model object, and what we know beyond it."""

    id: str
    object: str = "model"
    created: int
    owned_by: str
    capabilities: list[Capability]
    aliases: list[str]
    source: str
    format: str
    state: str
    max_instances: int
    rerank_method: str | None = None
    """`cosine` where the model is an embedder whose cosines stand in for a cross-encoder's scores."""


class ModelList(Frozen):
    """All models, by name."""

    object: str = "list"
    data: list[Model]


class ModelDeleted(Frozen):
    """OpenAI's answer to a deletion."""

    id: str
    object: str = "model"
    deleted: bool


@router.get("", summary="List models")
async def list_models(services: ServicesDep, _key: UserKey) -> ModelList:
    """Every model that a request may name."""
    return ModelList(data=[_shown(services, entry) for entry in services.shelf.catalogue.entries])


@router.get("/{name:path}", summary="Show a model")
async def show_model(name: str, services: ServicesDep, _key: UserKey) -> Model:
    """One model, by name or alias."""
    return _shown(services, services.shelf.catalogue.get(name))


@router.delete("/{name:path}", summary="Remove a model")
async def delete_model(name: str, services: ServicesDep, _key: AdminKey) -> ModelDeleted:
    """Remove a model that was added to the database; its weights stay where they are."""
    entry = services.shelf.catalogue.get(name)
    await asyncio.to_thread(ModelRows(services.settings, services.database).remove, entry.name)
    await services.shelf.refresh()
    return ModelDeleted(id=entry.name, deleted=True)


def _shown(services: ServicesDep, entry: ModelEntry) -> Model:
    states = {engine.told_state for engine in services.fleet.engines() if engine.entry.name == entry.name}
    away = "down" if entry.service_url and "down" in states else "cold"
    return Model(
        id=entry.name,
        created=_CREATED,
        owned_by="service" if entry.service_url else "coderai",
        capabilities=list(entry.capabilities),
        aliases=list(entry.aliases),
        source=entry.source,
        format=entry.format,
        state=next((state for state in ("ready", "loading", "quarantined") if state in states), away),
        max_instances=entry.max_instances,
        rerank_method=entry.rerank_method,
    )
