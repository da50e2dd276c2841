"""Keeps the answers of chats that ask for it with `store`, plain or streamed, before their clients have the end."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import orjson

from api.asgi import EventStream, Exchange
from api.errors import Headers
from api.openai.chats.shapes import completion_of, is_whole, labels_of, messages_of
from api.openai.endpoint import Stores
from api.run import AS_IT_COMES, Delivery, Order
from infra.chat_rows import NewChat, StoredChats, new_chat_id
from infra.database import Database
from infra.tokens import Key
from infra.types import ChatId, ModelName
from tasks.corrections.types import Body
from tasks.corrections.usage import usage_object
from tasks.gathered import MOST_BYTES, GatheredStream
from tasks.types import TaskResult, Usage

log = logging.getLogger("api.openai.chats")

_BLANK = b":\n\n"
"""A comment between two events: it begins the answer, and no other engine may be tried any more."""
_NO_EVENTS: Final = (b"{", b"[", b"<")
"""How an answer begins that is no stream: some services send JSON or a page all the same."""


class KeptStream(EventStream):
    """The client's end of a stream that is kept."""

    __slots__ = ("_gathered",)

    def __init__(self, exchange: Exchange, extra: Callable[[], Headers], gathered: GatheredStream) -> None:
        super().__init__(exchange, extra)
        self._gathered: GatheredStream | None = gathered

    async def write(self, data: bytes) -> None:
        """Pass on what is not held back; an answer that is no stream goes as it is."""
        if not self.started and data.lstrip().startswith(_NO_EVENTS):
            self._gathered = None
        if self._gathered is not None:
            data = self._gathered.feed(data)
            if not data and self.started:
                return
        await super().write(data or _BLANK)

    def finish(self) -> bytes:
        """The answer has come: what of it is still to be passed on. From now on all is, as it comes."""
        gathered, self._gathered = self._gathered, None
        return b"" if gathered is None else gathered.finish()

    async def tell(self, error: Exception) -> None:
        """See `EventStream.tell`; what is held back is not said any more."""
        self._gathered = None
        await super().tell(error)


class KeptChat:
    """One checked request whose answer is to be kept."""

    def __init__(self, database: Database, request: Body) -> None:
        self._chats = StoredChats(database)
        self._request = request
        self._id: ChatId = new_chat_id()
        choices = request.get("n")
        self._gathered = GatheredStream(self._id, choices if isinstance(choices, int) else 1)
        self._stream: KeptStream | None = None

    def open(self, exchange: Exchange, extra: Callable[[], Headers]) -> EventStream:
        """The client's end, where it has asked for a stream."""
        self._stream = KeptStream(exchange, extra, self._gathered)
        return self._stream

    async def keep(self, order: Order, result: TaskResult) -> TaskResult:
        """Store the answer, and give it as its client gets it; one that did not come whole is not stored.

        Raises:
            InvalidRequest, DiskFull, DatabaseUnusable: it cannot be stored.
        """
        if self._stream is None or not self._stream.started:
            return await asyncio.to_thread(self._keep_plain, order, result)
        ending = self._stream.finish()
        await asyncio.to_thread(self._keep_streamed, order, result.usage)
        return result._replace(ending=ending)

    def _keep_plain(self, order: Order, result: TaskResult) -> TaskResult:
        """Store a plain answer; it gets our id."""
        assert isinstance(result.value, bytes)
        found = _object(result.value)
        if found is None or not is_whole(found):
            _log_lost(order)
            return result
        answer: Body = {**found, "id": self._id}
        self._write(order, answer)
        return result._replace(value=orjson.dumps(answer))

    def _keep_streamed(self, order: Order, usage: Usage | None) -> None:
        answer = self._gathered.answer({} if usage is None else usage_object(usage))
        if answer is None:
            _log_lost(order)
        else:
            self._write(order, answer)

    def _write(self, order: Order, answer: Body) -> None:
        request, entry = self._request, order.entry
        self._chats.keep(
            NewChat(
                id=self._id,
                key=order.key.name,
                model=ModelName(entry.name),
                completion=completion_of(answer, request, entry, order.run),
                messages=messages_of(request),
                labels=labels_of(request),
            )
        )


def deliver(stores: Stores, _key: Key, body: Body) -> Delivery:
    """The answer as it comes; one that its request wants to be stored is kept before its end."""
    if body.get("store") is not True:
        return AS_IT_COMES
    kept = KeptChat(stores.database, body)
    return Delivery(kept.open, kept.keep)


def _object(body: bytes) -> Body | None:
    """A body as an object; None if it is none, or too large to be kept."""
    try:
        found = orjson.loads(body) if len(body) <= MOST_BYTES else None
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _log_lost(order: Order) -> None:
    log.warning("the answer of run %s is not stored: it did not come whole, or is too large", order.run)
