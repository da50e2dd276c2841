"""What is stored of a response, and what of those before it belongs to a request."""

import asyncio

import orjson

from api.openai.endpoint import Memory
from api.openai.responses import store
from api.openai.responses.items import kept_items
from api.openai.responses.mapping import items_of
from api.openai.responses.schema import check
from api.openai.responses.stream import ResponseStream
from api.run import AS_IT_COMES, Delivery
from infra.database import Database
from infra.tokens import Key
from infra.types import Json, ResponseId
from workers.types import ModelEntry, ModelFormat

Body = dict[str, Json]


async def recall(database: Database, key: Key, body: Body, entry: ModelEntry) -> Body:
    """The request with the whole conversation as its input.

    Raises:
        InvalidRequest: the request is wrong.
        NotFound: the key has no such response (any more).
    """
    previous = body.get("previous_response_id")
    if not isinstance(previous, str):
        return body
    check(body, far=entry.format is ModelFormat.SERVICE)
    before = await asyncio.to_thread(store.conversation, database, store.Whose.of(key), ResponseId(previous))
    return {**body, "input": [*before, *items_of(body.get("input"))]}


def deliver(database: Database, key: Key, body: Body) -> Delivery:
    """The response's stream in its own form; it is stored, unless the client does not want that, before its end."""
    if body.get("store") is False:
        return Delivery(ResponseStream)

    def write(response: bytes) -> None:
        store.keep(database, key.name, orjson.loads(response), kept_items(body.get("input")))

    async def keep(response: bytes) -> None:
        await asyncio.to_thread(write, response)

    return Delivery(ResponseStream, keep)


MEMORY = Memory(recall, deliver)
RECALLED = Memory(recall, lambda _database, _key, _body: AS_IT_COMES)
"""Of a request that goes on from a response, and makes none."""
