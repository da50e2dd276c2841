"""`/v1/loras`: the adapters that a key may use. New ones come by `api/media/lora_intake.py`."""

from typing import Literal

from fastapi import APIRouter

from api.cold import ServicesDep, UserKey
from infra.lora_rows import HASHED, Lora
from infra.tokens import Key
from infra.types import Frozen, KeyName

router = APIRouter(prefix="/v1/loras", tags=["loras"])


class LoraObject(Frozen):
    """An adapter; `id` is its content, `shared` whether everybody may use it by its name."""

    id: str
    object: Literal["lora"] = "lora"
    name: str | None
    base_model: str | None
    rank: int
    bytes: int
    created_at: int
    shared: bool
    key: KeyName | None
    """Whose it is, for an admin."""


class LoraList(Frozen):
    """Adapters, the latest first."""

    object: Literal["list"] = "list"
    data: list[LoraObject]


class LoraBlob(Frozen):
    """Content that is here."""

    id: str
    bytes: int
    exists: Literal[True] = True


class LoraDeleted(Frozen):
    """What has gone; its content goes with the last adapter that has it."""

    id: str
    object: Literal["lora.deleted"] = "lora.deleted"
    deleted: Literal[True] = True


@router.get("", summary="List LoRA adapters", response_model_exclude_none=True)
async def show_all(services: ServicesDep, key: UserKey) -> LoraList:
    """The caller's own, and those that an admin has given a name; an admin key sees all."""
    found = await services.files.run(lambda: services.files.loras.all(key))
    return LoraList(data=[_object(lora, key) for lora in found])


@router.get("/blob/{sha256}", summary="Whether an adapter's content is here")
async def show_blob(sha256: str, services: ServicesDep, key: UserKey) -> LoraBlob:
    """Its size, if this key may use it: else it is to be sent."""
    ref = HASHED + sha256.removeprefix(HASHED)
    await services.files.run(lambda: services.files.loras.content(ref, key))
    lora = await services.files.run(lambda: services.files.loras.find(ref, key))
    return LoraBlob(id=lora.ref, bytes=lora.size_bytes)


@router.get("/{name}", summary="Show a LoRA adapter", response_model_exclude_none=True)
async def show(name: str, services: ServicesDep, key: UserKey) -> LoraObject:
    """One adapter, by its name or its id (`sha256:…`)."""
    return _object(await services.files.run(lambda: services.files.loras.find(name, key)), key)


@router.delete("/{name}", summary="Delete a LoRA adapter")
async def delete(name: str, services: ServicesDep, key: UserKey) -> LoraDeleted:
    """Remove an adapter by its name, or by its id under all names that the caller has given it. Runs that used it can
    be run again for as long as their requests are kept."""
    return LoraDeleted(id=await services.files.run(lambda: services.files.loras.delete(name, key)))


def _object(lora: Lora, key: Key) -> LoraObject:
    return LoraObject(
        id=lora.ref,
        name=lora.name,
        base_model=lora.base_model,
        rank=lora.rank,
        bytes=lora.size_bytes,
        created_at=int(lora.created_at.timestamp()),
        shared=lora.shared,
        key=lora.key if key.scope == "admin" else None,
    )
