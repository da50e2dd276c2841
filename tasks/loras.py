"""A request's LoRA adapters, as files on this machine."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from infra.blobs import Blobs
from infra.errors import NotFound, PayloadGone
from infra.types import Json
from tasks.types import TaskCall


async def located(call: TaskCall, loras: Sequence[Json]) -> list[dict[str, Json]]:
    """The `loras` of a step's inputs, each `{blob, weight, name}`, as the engine takes them: `{path, weight, name}`.

    Raises:
        PayloadGone: an adapter is not kept any more.
    """
    return await asyncio.to_thread(lambda: [_located(lora, call.stores) for lora in loras])


def _located(lora: Json, stores: Iterable[Blobs]) -> dict[str, Json]:
    assert isinstance(lora, dict)
    return {"path": str(_find(str(lora["blob"]), stores)), "weight": lora["weight"], "name": lora["name"]}


def _find(ref: str, stores: Iterable[Blobs]) -> Path:
    for store in stores:
        try:
            return store.find(ref)
        except NotFound:
            continue
    raise PayloadGone("a LoRA adapter of this request is not kept any more: send the request anew")
