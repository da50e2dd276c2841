"""Stored responses: look at one, list what it was given, delete it."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from api.cold import ServicesDep, UserKey
from api.openai.responses import store
from infra.errors import InvalidRequest, NotFound
from infra.types import Frozen, ItemId, Json, ResponseId

router = APIRouter(prefix="/v1/responses", tags=["responses"])


class ResponseDeleted(Frozen):
    """OpenAI's answer to a deletion."""

    id: ResponseId
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class ItemList(Frozen):
    """Items of a response's input. `has_more`: ask again with `after` set to `last_id`."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: ItemId | None
    last_id: ItemId | None
    has_more: bool


class ItemQuery(Frozen):
    """Which items are listed."""

    limit: int = Field(20, ge=1, le=100, description="Items at once.")
    order: Literal["asc", "desc"] = Field("desc", description="`desc`: the last of the request first.")
    after: ItemId | None = Field(None, max_length=100, description="List what follows this item.")


@router.get("/{response_id}", summary="Show a stored response")
async def show_response(
    response_id: ResponseId, services: ServicesDep, key: UserKey, stream: bool | None = None
) -> dict[str, Any]:
    """A response of the caller's own; an admin key sees all."""
    if stream:
        raise InvalidRequest(
            "only a response made in the background could be followed, and none is here: leave out 'stream'",
            param="stream",
            code="unsupported_parameter",
        )
    return (await _stored(services, key, response_id)).response


@router.delete("/{response_id}", summary="Delete a stored response")
async def delete_response(response_id: ResponseId, services: ServicesDep, key: UserKey) -> ResponseDeleted:
    """It cannot be looked at or gone on from any more."""
    await asyncio.to_thread(store.remove, services.database, store.Whose.of(key), response_id)
    return ResponseDeleted(id=response_id)


@router.get("/{response_id}/input_items", summary="List the input of a stored response")
async def list_input(
    response_id: ResponseId, services: ServicesDep, key: UserKey, query: Annotated[ItemQuery, Query()]
) -> ItemList:
    """What the request of this response gave; what came before it is listed under the responses before it."""
    items = (await _stored(services, key, response_id)).input
    ordered = items if query.order == "asc" else items[::-1]
    ordered = ordered[_begin(ordered, query.after) :]
    page = ordered[: query.limit]
    return ItemList(
        data=page,
        first_id=_id(page[0]) if page else None,
        last_id=_id(page[-1]) if page else None,
        has_more=len(ordered) > len(page),
    )


@router.post("/{response_id}/cancel", summary="Cancel a response that is made in the background")
async def cancel_response(response_id: ResponseId, services: ServicesDep, key: UserKey) -> None:
    """Always refused: every response here is made while its client waits, who leaves, or cancels its run, to end it."""
    await _stored(services, key, response_id)
    raise InvalidRequest(
        "Cannot cancel a synchronous response. To end a request under way, close its connection, or POST "
        "/v1/runs/{run}/cancel with the run of its header X-Coderai-Run",
        param="response_id",
    )


async def _stored(services: ServicesDep, key: UserKey, response_id: ResponseId) -> store.Stored:
    return await asyncio.to_thread(store.get, services.database, store.Whose.of(key), response_id)


def _begin(items: list[dict[str, Json]], after: ItemId | None) -> int:
    if after is None:
        return 0
    place = next((place for place, item in enumerate(items) if _id(item) == after), None)
    if place is None:
        raise NotFound(f"the response's input has no item {after!r} to list from", param="after")
    return place + 1


def _id(item: dict[str, Json]) -> ItemId:
    return ItemId(str(item["id"]))
