"""How a step's bytes reach a waiting client while the step still runs."""

from typing import Protocol


class Channel(Protocol):
    """The client's end of a stream.

    The first `write` sends the answer's head; until then the step may be tried elsewhere, after that it may not.
    `write` returns when the client's connection has taken the bytes: a slow reader slows the engine, not our memory.
    """

    @property
    def started(self) -> bool:
        """Whether anything was written that cannot be taken back."""
        ...

    async def write(self, data: bytes) -> None:
        """Pass bytes on."""
        ...
