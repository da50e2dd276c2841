"""What a runtime of the engine process is: a model that is loaded once, and functions that answer requests with it.

A runtime knows neither HTTP nor asyncio. `load` and every handler run in threads; a handler calls `Ask.check` between
pieces of work, so that a client that has left does not keep a slot busy.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from infra.types import Json
from workers.engine.runtimes.progress import Progress
from workers.wire import EngineLaunch


class Abandoned(Exception):
    """The client has left: nobody wants the answer."""


@dataclass(frozen=True, slots=True)
class Upload:
    """One file of a form; `part` is its field's name there. `name` is the client's: never a path of ours."""

    part: str
    name: str
    media_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: `body` is its JSON object; of a form its text fields, each a list of the values given to it."""

    body: Mapping[str, Json]
    files: tuple[Upload, ...] = ()
    gone: threading.Event = field(default_factory=threading.Event)
    progress: Progress = field(default_factory=Progress, repr=False)

    def check(self) -> None:
        """Raises Abandoned once the client has left."""
        if self.gone.is_set():
            raise Abandoned


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer: whole, or in pieces that are sent as they are made."""

    body: bytes | Iterator[bytes]
    media_type: str = "application/json"


Handler = Callable[[Ask], Reply]
"""Raises `CoderAIError`: InvalidRequest and its kin for the client's faults, anything else is the engine's."""


class Runtime(Protocol):
    """One model in memory."""

    def load(self, launch: EngineLaunch) -> None:
        """Load the model; called once, before any request.

        Raises:
            LoadFailed: with a sentence; the process then ends.
        """
        ...

    def routes(self) -> Mapping[str, Handler]:
        """What answers a POST, by its path below `/v1`, such as `/audio/transcriptions`."""
        ...
