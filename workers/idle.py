"""Models that nobody has asked for in a while leave memory; the next request loads them again."""

import asyncio
import logging

from infra.clock import Clock, monotonic
from workers.residents import Residents, is_idle

log = logging.getLogger("workers.idle")

LOOK_S = 15.0


async def unload_idle(
    residents: Residents, after_s: float, *, every_s: float = LOOK_S, clock: Clock = monotonic
) -> None:
    """Unload what has been idle for `after_s` seconds, for ever; 0 = nothing ever. A model that is `keep_resident`
    stays. An engine that an earlier front had loaded counts as used when this one began."""
    began_s = clock()
    while True:
        await asyncio.sleep(every_s)
        for engine in list(residents.engines.values()) if after_s else []:
            unused_s = clock() - max(engine.last_used_s, began_s)
            if engine.state == "ready" and is_idle(engine) and unused_s >= after_s:
                log.info("%s has been idle for %.0f minutes: unloading it", engine.id, unused_s / 60)
                residents.unload(engine)
