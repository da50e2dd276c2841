"""The front's composition root: every part made once, by keyword, in the order of the layers."""

import asyncio
import contextlib
import hashlib
import importlib.metadata
from collections.abc import AsyncIterator, Awaitable, Callable

from api.accounting import Accounting
from api.auth import Auth
from api.limits import KeyLimits
from api.run import Runner
from api.services import Services
from api.shelf import Shelf
from api.watchers import keep_alive
from flows.execute import Executor
from infra.database import open_database, require_current
from infra.errors import InvalidRequest, LoadFailed
from infra.hardware.cards import physical_cores
from infra.hardware.detect import detect, read_card
from infra.hardware.thermal import ThermalGate
from infra.log import AccessLog
from infra.metrics import Metrics
from infra.settings import CardsSettings, Settings
from infra.spool import Spool
from infra.supervisor.types import Children
from infra.tokens import TokenTable
from infra.types import PoolId
from tasks.registry import TASKS
from workers.cards import card_pools, watch_cards
from workers.fleet import Fleet
from workers.loading import Loader
from workers.packaged.catalogue import packaged_entries
from workers.pools.card import CardPool, slot_context_tokens
from workers.pools.service import ServiceChecks
from workers.residents import Residents
from workers.transport import Transport
from workers.types import ModelEntry
from workers.watchdog import watch_engines
from workers.weights import memory_bytes, read_weights

VERSION = importlib.metadata.version("coderai")


@contextlib.asynccontextmanager
async def open_front(settings: Settings, children: Children, internal_token: str) -> AsyncIterator[Services]:
    """A front's parts, running; at the end everything is written down and closed.

    Raises:
        CoderAIError: the database is missing, too new or damaged, or a row of the settings file cannot be used.
    """
    database = open_database(settings.sqlalchemy_url)
    require_current(database)
    tokens = TokenTable(database)
    packaged = packaged_entries(settings.home, only_ready=True) if settings.models.packaged else ()
    shelf = Shelf(settings, database, tokens, lambda: packaged, read_weights)
    metrics, access = Metrics(VERSION), AccessLog(settings.log)
    accounting = Accounting(metrics, access, database)
    transport = Transport()
    cards = await asyncio.to_thread(detect, settings.cards)
    pools = card_pools(cards, settings.cards, llama_backends(settings))
    fleet = _fleet(settings, children, transport, pools, engine_key(internal_token))
    shelf.changed, fleet.current = fleet.forget, shelf.current
    spool = _spool(settings)
    services = Services(
        settings=settings,
        database=database,
        auth=Auth(tokens, internal_token),
        limits=KeyLimits(settings.auth),
        shelf=shelf,
        fleet=fleet,
        runner=Runner(Executor(TASKS, transport), fleet, spool),
        accounting=accounting,
        metrics=metrics,
        spool=spool,
        version=VERSION,
    )
    watchers = _watchers(services, transport, pools)
    fleet.adopt(shelf.catalogue.find)
    try:
        yield services
    finally:
        await _close(services, watchers)
        access.flush()
        await transport.close()
        database.close()


def _watchers(
    services: Services, transport: Transport, pools: dict[PoolId, CardPool]
) -> tuple[asyncio.Task[None], ...]:
    """What runs beside the requests, begun."""
    cards = services.settings.cards
    gates, residents = _gates(pools, cards), services.fleet.residents
    watches: dict[str, Callable[[], Awaitable[None]]] = {
        "the look at models and keys": services.shelf.keep_fresh,
        "the writing of usage": services.accounting.keep_flushing,
        "the watch over the cards": lambda: watch_cards(pools, read_card, gates, cards.poll_s),
        "the watch over the engines": lambda: watch_engines(residents, transport),
    }
    return tuple(asyncio.create_task(keep_alive(name, watch), name=name) for name, watch in watches.items())


async def _close(services: Services, watchers: tuple[asyncio.Task[None], ...]) -> None:
    """Stop what runs beside the requests, and write down what is only in memory."""
    for watcher in watchers:
        watcher.cancel()
    await asyncio.gather(*watchers, return_exceptions=True)
    await services.fleet.residents.close()
    await services.accounting.flush()
    if services.spool is not None:
        services.spool.close()


def engine_key(internal_token: str) -> str:
    """What engine processes demand: derived, so that an engine never holds the token that opens the front."""
    return hashlib.sha256(b"engine:" + internal_token.encode()).hexdigest()


def llama_backends(settings: Settings) -> frozenset[str]:
    """The card kinds that the llama.cpp in use can run on: the wheel knows the CPU alone."""
    return frozenset({"cpu"} if settings.llama.server_bin is None else {"cpu", "cuda", "rocm", "vulkan"})


def _fleet(
    settings: Settings, children: Children, transport: Transport, pools: dict[PoolId, CardPool], key: str
) -> Fleet:
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


def _gates(pools: dict[PoolId, CardPool], settings: CardsSettings) -> dict[PoolId, ThermalGate]:
    own = {spec.name: spec.temperature_limit_c for spec in settings.engine_specs}
    return {pool: ThermalGate(own.get(pool) or settings.temperature_limit_c) for pool in pools}


def _spool(settings: Settings) -> Spool | None:
    record = settings.record
    if not record.spool:
        return None
    return Spool(settings.at("spool"), max_bytes=record.spool_max_mib * 2**20, segment_bytes=record.segment_mib * 2**20)
