"""Stored responses: look at one, follow or cancel one in the background, list what it was given, delete it."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from api.cold import ServicesDep, UserKey
from api.openai.listing import after_item
from api.openai.responses import background, store
from api.openai.responses.follow import Follower, followed
from infra.errors import InvalidRequest
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


@router.get("/{response_id}", summary="Show or follow a stored response", response_model=dict[str, Any])
async def show_response(
    response_id: ResponseId,
    services: ServicesDep,
    key: UserKey,
    stream: Annotated[
        bool | None, Query(description="Follow one that is made in the background, event by event.")
    ] = None,
    starting_after: Annotated[
        int | None, Query(ge=0, description="The number of the last event that is known.")
    ] = None,
) -> dict[str, Any] | Response:
    """A response of the caller's own; an admin key sees all. One in the background has the status `queued` or
    `in_progress` until it is over, and names its `run`."""
    stored = await _stored(services, key, response_id)
    if not stream:
        return stored.shown
    if stored.status is None:
        raise InvalidRequest(
            "only a response that was made in the background can be followed: leave out 'stream'",
            param="stream",
            code="unsupported_parameter",
        )
    follower = Follower(services, store.Whose.of(key), response_id)
    return followed(follower, stored.run, -1 if starting_after is None else starting_after)


@router.delete("/{response_id}", summary="Delete a stored response")
async def delete_response(response_id: ResponseId, services: ServicesDep, key: UserKey) -> ResponseDeleted:
    """It cannot be looked at or gone on from any more; one that is being made in the background is ended."""
    await background.remove(services, key, response_id)
    return ResponseDeleted(id=response_id)


@router.get("/{response_id}/input_items", summary="List the input of a stored response")
async def list_input(
    response_id: ResponseId, services: ServicesDep, key: UserKey, query: Annotated[ItemQuery, Query()]
) -> ItemList:
    """What the request of this response gave; what came before it is listed under the responses before it."""
    items = (await _stored(services, key, response_id)).input
    ordered = items if query.order == "asc" else items[::-1]
    ordered = after_item(ordered, query.after, "the response's input has no item")
    page = ordered[: query.limit]
    return ItemList(
        data=page,
        first_id=_id(page[0]) if page else None,
        last_id=_id(page[-1]) if page else None,
        has_more=len(ordered) > len(page),
    )


@router.post("/{response_id}/cancel", summary="Cancel a response that is made in the background")
async def cancel_response(response_id: ResponseId, services: ServicesDep, key: UserKey) -> dict[str, Any]:
    """End it; one that is over is shown as it is. Refused for a response that is made while its client waits, who
    leaves, or cancels its run, to end it."""
    if (await _stored(services, key, response_id)).status is None:
        raise InvalidRequest(
            "Cannot cancel a synchronous response. To end a request under way, close its connection, or POST "
            "/v1/runs/{run}/cancel with the run of its header X-Coderai-Run",
            param="response_id",
        )
    return (await background.cancel(services, key, response_id)).shown


async def _stored(services: ServicesDep, key: UserKey, response_id: ResponseId) -> store.Stored:
    return await asyncio.to_thread(store.get, services.database, store.Whose.of(key), response_id)


def _id(item: dict[str, Json]) -> ItemId:
    return ItemId(str(item["id"]))
