"""What every task takes and gives."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from infra.blobs import Blobs
from infra.errors import NotFound, PayloadGone
from infra.types import Json
from tasks.channel import Channel
from workers.live import Engine
from workers.transport import Transport
from workers.wire import Mark


class Usage(NamedTuple):
    """Tokens of one step, as the engine counted them."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0


class TaskCall(NamedTuple):
    """One call of a task: its inputs (values and earlier results, by name), its engine if it has a lease, a channel
    if the client streams."""

    inputs: Mapping[str, Json]
    transport: Transport
    engine: Engine | None = None
    channel: Channel | None = None
    stores: tuple[Blobs, ...] = ()
    """Where a reference to a blob in the inputs is looked for."""
    outputs: Blobs | None = None
    """Where the bytes that a step makes are kept, for later steps and for the answer."""
    mark: Mark | None = None
    """Whose work it is: goes with requests to an engine, so that their progress is found."""

    def leased(self) -> Engine:
        """The engine; a task that needs one is never called without."""
        assert self.engine is not None
        return self.engine

    def part(self, before: int, requests: int) -> Mark | None:
        """The mark of one of several requests to the engine, `before` of which are done."""
        return self.mark and self.mark._replace(before=before, requests=requests)

    async def keep(self, data: bytes) -> str:
        """Keep bytes that the step has made; returns their reference, which its result may name.

        Raises:
            DiskFull: there is no room.
        """
        assert self.outputs is not None
        return await asyncio.to_thread(self.outputs.put, data)

    async def fetch(self, ref: str) -> bytes:
        """The bytes that an input refers to.

        Raises:
            PayloadGone: they are not kept any more.
        """
        return await asyncio.to_thread(self._fetch, ref)

    def _fetch(self, ref: str) -> bytes:
        for store in self.stores if self.outputs is None else (*self.stores, self.outputs):
            try:
                return store.get(ref)
            except NotFound:
                continue
        raise PayloadGone("what an earlier step of this request has made is not kept any more: send the request anew")


class TaskResult(NamedTuple):
    """A step's result: JSON for later steps, or an answer's bytes as they came from the engine, with their kind."""

    value: Json | bytes
    usage: Usage | None = None
    media_type: str = "application/json"
    ending: bytes = b""
    """Of a stream: what is left to be sent once the value is kept."""
    items: int | None = None
    """How many of the request's items were done, where that is not what the plan says."""
    units: float = 0.0
    """What was used besides tokens, in what the endpoint counts: pages read, seconds heard, characters
    spoken, images and videos made."""


Task = Callable[[TaskCall], Awaitable[TaskResult]]
