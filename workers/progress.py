"""How far engine processes are: each is asked when somebody wants to know, and not twice in a moment."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from pydantic import ValidationError

from infra.clock import Clock, monotonic
from infra.types import EngineId
from workers.live import Engine
from workers.transport import Transport
from workers.types import ModelFormat
from workers.wire import Working, WorkingList

log = logging.getLogger(__name__)

FRESH_S: Final = 0.4
"""Seconds that an answer is good for, however many ask."""
_PATIENCE_S: Final = 2.0
_PATH: Final = "/progress"
_SILENT: Final = frozenset({ModelFormat.GGUF, ModelFormat.SERVICE})
"""Formats whose engines are no process of ours, and know nothing of this."""


class ProgressLooks:
    """Asks engine processes what they work on."""

    def __init__(self, transport: Transport, clock: Clock = monotonic) -> None:
        self._transport = transport
        self._clock = clock
        self._seen: dict[EngineId, tuple[float, asyncio.Future[tuple[Working, ...]]]] = {}

    async def at(self, engines: Iterable[Engine]) -> list[Working]:
        """All that these engines work on. One that does not answer in time has nothing to say."""
        asked = {engine.id: engine for engine in engines if tells(engine)}
        looks = await asyncio.gather(*map(self._look, asked.values()))
        return [working for look in looks for working in look]

    async def _look(self, engine: Engine) -> tuple[Working, ...]:
        now_s = self._clock()
        for old in [name for name, (at_s, _look) in self._seen.items() if now_s - at_s >= FRESH_S]:
            del self._seen[old]
        if engine.id not in self._seen:
            self._seen[engine.id] = now_s, asyncio.ensure_future(self._ask(engine))
        return await asyncio.shield(self._seen[engine.id][1])  # who asks may go: others wait for the same

    async def _ask(self, engine: Engine) -> tuple[Working, ...]:
        answer = await self._transport.get_object(engine.base_url + _PATH, engine.headers, _PATIENCE_S)
        if not answer:
            return ()
        try:
            return WorkingList.model_validate(answer).data
        except ValidationError as error:
            log.warning("%s tells its progress in words of its own: %s", engine.id, error.errors()[0]["msg"])
            return ()


def tells(engine: Engine) -> bool:
    """Whether the engine is one that can say how far it is."""
    return engine.local and engine.state == "ready" and engine.entry.format not in _SILENT
