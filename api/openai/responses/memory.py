"""What is stored of a response, and what of those before it belongs to a request."""

import asyncio
from functools import partial
from typing import Protocol

import orjson

from api.openai.endpoint import Memory, Stores
from api.openai.responses import compact_schema, schema, store
from api.openai.responses.compaction import has_compactions, opened, sealed
from api.openai.responses.items import kept_items
from api.openai.responses.mapping import items_of
from api.openai.responses.stream import ResponseStream
from api.run import AS_IT_COMES, Delivery, Order
from infra.tokens import Key
from infra.types import Json, ResponseId
from tasks.types import TaskResult
from workers.types import ModelEntry, ModelFormat

Body = dict[str, Json]


class Check(Protocol):
    """Checks a request's body."""

    def __call__(self, body: Body, *, far: bool) -> None:
        """Raises InvalidRequest; `far`: it is for a model of a far service."""
        ...


async def recall(stores: Stores, key: Key, body: Body, entry: ModelEntry, *, check: Check = schema.check) -> Body:
    """The request with the whole conversation as its input, its compactions opened.

    Raises:
        InvalidRequest: the request is wrong, or a compaction is not this key's.
        NotFound: the key has no such response (any more).
    """
    previous = body.get("previous_response_id")
    if not isinstance(previous, str) and not has_compactions(body.get("input")):
        return body
    check(body, far=entry.format is ModelFormat.SERVICE)

    def read() -> list[Json]:
        given = opened(stores.seals, key.name, items_of(body.get("input")))
        before: list[store.Turn] = []
        if isinstance(previous, str):
            before = store.conversation(stores.database, store.Whose.of(key), ResponseId(previous))
        told = [item for turn in before for item in opened(stores.seals, turn.key, turn.items, stored=True)]
        return [*told, *given]

    return {**body, "input": await asyncio.to_thread(read)}


def deliver(stores: Stores, key: Key, body: Body) -> Delivery:
    """The response's stream in its own form; it is stored, unless the client does not want that, before its end."""
    if body.get("store") is False:
        return Delivery(ResponseStream)

    def write(response: bytes) -> None:
        store.keep(stores.database, key.name, orjson.loads(response), kept_items(body.get("input")))

    async def keep(_order: Order, result: TaskResult) -> TaskResult:
        assert isinstance(result.value, bytes)
        await asyncio.to_thread(write, result.value)
        return result

    return Delivery(ResponseStream, keep)


def deliver_sealed(stores: Stores, key: Key, _body: Body) -> Delivery:
    """The answer with its summary sealed for the caller; nothing is stored."""
    return Delivery(turn=partial(sealed, stores.seals, key.name))


MEMORY = Memory(recall, deliver)
RECALLED = Memory(recall, lambda _stores, _key, _body: AS_IT_COMES)
"""Of a request that goes on from a response, and makes none."""
COMPACTED = Memory(partial(recall, check=compact_schema.check), deliver_sealed)
"""Of a request whose answer its client keeps."""
