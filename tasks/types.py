"""What every task takes and gives."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from infra.blobs import Blobs
from infra.types import Json
from tasks.channel import Channel
from workers.live import Engine
from workers.transport import Transport


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

    def leased(self) -> Engine:
        """The engine; a task that needs one is never called without."""
        assert self.engine is not None
        return self.engine


class TaskResult(NamedTuple):
    """A step's result: JSON for later steps, or an answer's bytes as they came from the engine, with their kind."""

    value: Json | bytes
    usage: Usage | None = None
    media_type: str = "application/json"
    ending: bytes = b""
    """Of a stream: what is left to be sent once the value is kept."""


Task = Callable[[TaskCall], Awaitable[TaskResult]]
