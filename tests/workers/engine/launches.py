"""Launches of engine processes."""

from infra.types import EngineId, PoolId
from workers.types import ModelEntry
from workers.wire import EngineLaunch


def launch_of(entry: ModelEntry, slots: int = 1) -> EngineLaunch:
    """The entry on the processor."""
    return EngineLaunch(
        engine=EngineId(f"cpu/{entry.name}"),
        entry=entry,
        pool=PoolId("cpu"),
        backend="cpu",
        slots=slots,
        context_tokens=256,
        threads=1,
        cache_ram_mib=0,
    )
