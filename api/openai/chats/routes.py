"""Stored chat completions: list them, look at one, at the messages that it was asked with, label it, delete it."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from api.cold import ServicesDep, UserKey
from api.openai.chats.shapes import message_shown
from api.openai.files import owner
from api.openai.listing import after_item
from api.openai.schemas.shared import Metadata, validate
from infra.chat_rows import ChatsWanted, StoredChats, is_chat_id
from infra.errors import InvalidRequest, NotFound
from infra.types import ChatId, Frozen, ItemId, Json, ModelName

router = APIRouter(prefix="/v1/chat/completions", tags=["chat"])

_LABEL: Final = re.compile(r"metadata\[(.*)\]", re.DOTALL)
_METADATA: Final[dict[str, Any]] = {
    "name": "metadata",
    "in": "query",
    "style": "deepObject",
    "explode": True,
    "schema": {"type": "object", "maxProperties": 16, "additionalProperties": {"type": "string", "maxLength": 512}},
    "description": "Only those with all of these pairs: `metadata[key]=value`.",
}
Order = Literal["asc", "desc"]
Limit = Annotated[int, Query(ge=1, le=100, description="How many at once.")]
Body = dict[str, Json]


class _Labels(TypedDict):
    metadata: Metadata


_LABELS: Final = TypeAdapter(_Labels)


class ChatList(Frozen):
    """Stored chat completions. `has_more`: ask again with `after` set to `last_id`."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: ChatId | None
    last_id: ChatId | None
    has_more: bool


class ChatMessageList(Frozen):
    """Messages of a stored chat completion's request. `has_more`: ask again with `after` set to `last_id`."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: ItemId | None
    last_id: ItemId | None
    has_more: bool


class ChatUpdate(Frozen):
    """What of a stored chat completion can be changed."""

    metadata: Metadata | None = Field(description="All its pairs from now on; null: none.")


class ChatDeleted(Frozen):
    """OpenAI's answer to a deletion."""

    object: Literal["chat.completion.deleted"] = "chat.completion.deleted"
    id: ChatId
    deleted: Literal[True] = True


async def _wanted(
    request: Request,
    model: Annotated[ModelName | None, Query(max_length=500, description="Only those of this model.")] = None,
    after: Annotated[ChatId | None, Query(description="List what follows this one.")] = None,
    limit: Limit = 20,
    order: Annotated[Order, Query(description="By age: asc gives the oldest first.")] = "asc",
) -> ChatsWanted:
    if after is not None and not is_chat_id(after):
        raise InvalidRequest(
            "after is the id of a stored chat completion, such as the last_id of the list before", param="after"
        )
    pairs = request.query_params.multi_items()
    labels = {found[1]: value for name, value in pairs if (found := _LABEL.fullmatch(name))}
    if labels:
        validate(_LABELS, {"metadata": dict[str, Json](labels)})
    return ChatsWanted(None, model, labels, after, order, limit)


@router.get(
    "",
    summary="List stored chat completions",
    response_model=ChatList,
    openapi_extra={"parameters": [_METADATA]},
)
async def list_chats(services: ServicesDep, key: UserKey, asked: Annotated[ChatsWanted, Depends(_wanted)]) -> Response:
    """The caller's own chat completions that were made with `store`; an admin key sees all."""
    entry = None if asked.model is None else services.shelf.catalogue.find(asked.model)
    wanted = replace(asked, key=owner(key), model=asked.model if entry is None else entry.name)

    def page() -> Body:
        return _page(*StoredChats(services.database).page(wanted))

    return await _answered(page)


@router.get("/{completion_id}", summary="Show a stored chat completion", response_model=dict[str, Any])
async def show_chat(completion_id: ChatId, services: ServicesDep, key: UserKey) -> Response:
    """The answer, its `metadata`, and the settings of its request; `request_id` is its run."""
    _require_id(completion_id)
    return await _answered(lambda: StoredChats(services.database).get(completion_id, owner(key)))


@router.post("/{completion_id}", summary="Label a stored chat completion", response_model=dict[str, Any])
async def update_chat(completion_id: ChatId, body: ChatUpdate, services: ServicesDep, key: UserKey) -> Response:
    """Give it other `metadata`; nothing else of it can be changed."""
    _require_id(completion_id)
    labels = body.metadata or {}
    return await _answered(lambda: StoredChats(services.database).relabel(completion_id, owner(key), labels))


@router.delete("/{completion_id}", summary="Delete a stored chat completion")
async def delete_chat(completion_id: ChatId, services: ServicesDep, key: UserKey) -> ChatDeleted:
    """It cannot be found any more, nor can its messages."""
    _require_id(completion_id)
    await asyncio.to_thread(StoredChats(services.database).remove, completion_id, owner(key))
    return ChatDeleted(id=completion_id)


@router.get(
    "/{completion_id}/messages", summary="List the messages of a stored chat completion", response_model=ChatMessageList
)
async def list_messages(
    completion_id: ChatId,
    services: ServicesDep,
    key: UserKey,
    after: Annotated[ItemId | None, Query(max_length=100, description="List what follows this message.")] = None,
    limit: Limit = 20,
    order: Annotated[Order, Query(description="`desc`: the last of the request first.")] = "asc",
) -> Response:
    """What its request gave, each message with an id; the answer is in the completion."""
    _require_id(completion_id)

    def page() -> Body:
        messages = StoredChats(services.database).messages(completion_id, owner(key))
        shown = [message_shown(completion_id, number, message) for number, message in enumerate(messages)]
        ordered = shown if order == "asc" else shown[::-1]
        rest = after_item(ordered, after, "the chat completion has no message")
        return _page(rest[:limit], len(rest) > limit)

    return await _answered(page)


def _require_id(completion: ChatId) -> None:
    if not is_chat_id(completion):
        raise NotFound(f"Chat completion with id '{completion[:100]}' not found.", param="completion_id")


def _page(data: list[Body], more: bool) -> Body:
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": list[Json](data), "first_id": first, "last_id": last, "has_more": more}


async def _answered(make: Callable[[], Body]) -> Response:
    """What `make` gives, written down in its thread: it may be tens of megabytes."""
    return Response(await asyncio.to_thread(lambda: orjson.dumps(make())), media_type="application/json")
