"""The part of the composition that places steps: the fleet over this machine's cards."""

import asyncio
import hashlib

from infra.hardware.cards import physical_cores
from infra.hardware.thermal import ThermalGate
from infra.settings import CardsSettings, Settings
from infra.supervisor.types import Children
from infra.types import PoolId
from workers.fleet import Fleet
from workers.footprint import needed_bytes
from workers.loading import Loader
from workers.pools.card import CardPool
from workers.pools.service import ServiceChecks
from workers.residents import Residents
from workers.transport import Transport
from workers.types import ModelEntry


def engine_key(internal_token: str) -> str:
    """What engine processes demand: derived, so that an engine never holds the token that opens the front."""
    return hashlib.sha256(b"engine:" + internal_token.encode()).hexdigest()


def llama_backends(settings: Settings) -> frozenset[str]:
    """The card kinds that the llama.cpp in use can run on: the wheel knows the CPU alone."""
    return frozenset({"cpu"} if settings.llama.server_bin is None else {"cpu", "cuda", "rocm", "vulkan"})


def open_fleet(
    settings: Settings, children: Children, transport: Transport, pools: dict[PoolId, CardPool], key: str
) -> Fleet:
    """The fleet, with nothing loaded yet; `key` is what engine processes demand."""
    loader = Loader(children, transport, settings.llama, key)
    threads = max(1, physical_cores() - 1)
    residents = Residents(pools, loader, children, settings.llama, threads=threads)

    async def needed(entry: ModelEntry) -> int:
        return await asyncio.to_thread(needed_bytes, entry, settings.llama)

    return Fleet(pools, residents, ServiceChecks(transport), settings.server, needed)


def thermal_gates(pools: dict[PoolId, CardPool], settings: CardsSettings) -> dict[PoolId, ThermalGate]:
    """One gate a card, each with its own limit."""
    own = {spec.name: spec.temperature_limit_c for spec in settings.engine_specs}
    return {pool: ThermalGate(own.get(pool) or settings.temperature_limit_c) for pool in pools}
