"""Engines that neither die nor answer: one that misses its health checks is ended, so that its work goes elsewhere."""

import asyncio
import logging

from infra.types import EngineId
from workers.live import Engine
from workers.residents import Residents
from workers.transport import Transport

log = logging.getLogger("workers.watchdog")

CHECK_EVERY_S = 10.0
CHECK_TIMEOUT_S = 5.0
MISSES = 3
"""Checks in a row that an engine may miss."""


async def watch_engines(
    residents: Residents, transport: Transport, *, every_s: float = CHECK_EVERY_S, timeout_s: float = CHECK_TIMEOUT_S
) -> None:
    """Ask every ready engine for its health, for ever; end one that misses `MISSES` checks in a row.

    What runs there breaks off and is tried once more, which loads the model anew.
    """
    missed: dict[EngineId, int] = {}
    while True:
        await asyncio.sleep(every_s)
        ready = [engine for engine in residents.engines.values() if engine.state == "ready"]
        answers = await asyncio.gather(*(_answers(engine, transport, timeout_s) for engine in ready))
        for engine, answered in zip(ready, answers, strict=True):
            missed[engine.id] = 0 if answered else missed.get(engine.id, 0) + 1
            if missed[engine.id] >= MISSES and residents.engines.get(engine.id) is engine:
                log.error("%s has missed %d health checks: ending it", engine.id, MISSES)
                residents.unload(engine)
        missed = {engine: count for engine, count in missed.items() if count and engine in residents.engines}


async def _answers(engine: Engine, transport: Transport, timeout_s: float) -> bool:
    health = engine.base_url.removesuffix("/v1") + "/health"
    return await transport.alive(health, engine.headers, timeout_s) == 200
