"""The part of the composition that places steps: the fleet over this machine's cards."""

import asyncio
import hashlib

from infra.errors import InvalidRequest, LoadFailed
from infra.hardware.cards import physical_cores
from infra.hardware.thermal import ThermalGate
from infra.settings import CardsSettings, Settings
from infra.supervisor.types import Children
from infra.types import PoolId
from workers.fleet import Fleet
from workers.loading import Loader
from workers.pools.card import CardPool, slot_context_tokens
from workers.pools.service import ServiceChecks
from workers.residents import Residents
from workers.transport import Transport
from workers.types import ModelEntry
from workers.weights import memory_bytes, read_weights


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

    async def needed_bytes(entry: ModelEntry) -> int:
        return await asyncio.to_thread(_needed_bytes, entry, settings)

    return Fleet(pools, residents, ServiceChecks(transport), settings.server, needed_bytes)


def _needed_bytes(entry: ModelEntry, settings: Settings) -> int:
    """Memory of one engine process: weights, KV cache of all slots, working memory, prompt cache.

    Raises:
        LoadFailed: the file has gone or gone bad since it was added, which is no fault of the request's.
    """
    assert entry.path is not None
    try:
        facts = read_weights(entry.path)
    except InvalidRequest as error:
        raise LoadFailed(f"model '{entry.name}' could not be loaded: {error.message}") from error
    context_tokens = slot_context_tokens(entry, settings.llama)
    return memory_bytes(facts, context_tokens, entry.max_instances) + settings.llama.cache_ram_mib * 2**20


def thermal_gates(pools: dict[PoolId, CardPool], settings: CardsSettings) -> dict[PoolId, ThermalGate]:
    """One gate a card, each with its own limit."""
    own = {spec.name: spec.temperature_limit_c for spec in settings.engine_specs}
    return {pool: ThermalGate(own.get(pool) or settings.temperature_limit_c) for pool in pools}
