"""The front's composition root: every part made once, by keyword, in the order of the layers."""

import asyncio
import contextlib
import importlib.metadata
from collections.abc import AsyncIterator, Awaitable, Callable

from api.accounting import Accounting
from api.admin.sessions import KEY_FILE
from api.auth import Auth
from api.batches import BatchWatch
from api.compose_fleet import engine_key, llama_backends, open_fleet, thermal_gates
from api.compose_flows import FlowParts, open_flow_parts
from api.file_desk import FileDesk
from api.limits import KeyLimits
from api.media.kept import KeptFiles
from api.openai.responses.pruning import keep_pruning
from api.openai.responses.sweeping import keep_sweeping
from api.openai.responses.watch import ResponseWatch
from api.progress import ProgressDesk
from api.run import Runner
from api.seals import Seals
from api.services import Services
from api.shelf import Shelf
from api.watchers import keep_alive
from flows.execute import Executor
from infra.database import Database, open_database, require_current
from infra.hardware.detect import detect, read_card
from infra.log import AccessLog
from infra.metrics import Metrics
from infra.response_events import ResponseEvents
from infra.response_rows import BackgroundResponses
from infra.settings import Settings
from infra.supervisor.types import Children
from infra.tokens import TokenTable
from infra.types import PoolId
from tasks.registry import TASKS
from workers.cards import card_pools, watch_cards
from workers.folders.reading import read_model
from workers.idle import unload_idle
from workers.packaged.catalogue import packaged_entries
from workers.pools.card import CardPool
from workers.pools.orders import ORDERS_FILE, OrderBook
from workers.progress import ProgressLooks
from workers.sites import Sites
from workers.speeds import Speeds
from workers.transport import Transport
from workers.watchdog import watch_engines

VERSION = importlib.metadata.version("coderai")


@contextlib.asynccontextmanager
async def open_front(settings: Settings, children: Children, internal_token: str) -> AsyncIterator[Services]:
    """A front's parts, running; at the end everything is written down and closed.

    Raises:
        CoderAIError: the database is missing, too new or damaged, or a row of the settings file cannot be used.
    """
    database = await asyncio.to_thread(_current_database, settings)
    tokens = TokenTable(database)
    shelf = _shelf(settings, database, tokens)
    metrics, access, transport = Metrics(VERSION), AccessLog(settings.log), Transport()
    accounting = Accounting(metrics, access, database)
    pools = card_pools(await asyncio.to_thread(detect, settings.cards), settings.cards, llama_backends(settings))
    fleet = open_fleet(settings, children, transport, pools, engine_key(internal_token))
    shelf.changed, fleet.current = fleet.forget, shelf.current
    flows, speeds = open_flow_parts(settings, children, internal_token), Speeds()
    kept = KeptFiles(settings, recorded=flows.recording is not None)
    executor = Executor(TASKS, transport, kept.blobs, speeds, kept.outputs)
    services = Services(
        settings=settings,
        database=database,
        auth=Auth(tokens, internal_token),
        limits=KeyLimits(settings.auth),
        shelf=shelf,
        fleet=fleet,
        children=children,
        sites=Sites(fleet, speeds),
        runner=Runner(executor, fleet, flows.active, flows.recording),
        accounting=accounting,
        metrics=metrics,
        spool=flows.spool,
        active=flows.active,
        prefect=flows.address,
        prefect_api=flows.api,
        progress=ProgressDesk(flows.active, ProgressLooks(transport), fleet.residents.engines),
        files=FileDesk(settings, database),
        kept=kept,
        seals=Seals(settings.at(*KEY_FILE)),
        version=VERSION,
    )
    watchers = _watchers(services, flows, transport, pools)
    fleet.adopt(shelf.catalogue.find)
    try:
        yield services
    finally:
        await _close(services, watchers, access, transport)


def _current_database(settings: Settings) -> Database:
    database = open_database(settings.sqlalchemy_url)
    require_current(database)
    return database


def _shelf(settings: Settings, database: Database, tokens: TokenTable) -> Shelf:
    packaged = packaged_entries(settings.home, only_ready=True) if settings.models.packaged else ()
    return Shelf(settings, database, tokens, lambda: packaged, read_model)


def _watchers(
    services: Services, flows: FlowParts, transport: Transport, pools: dict[PoolId, CardPool]
) -> tuple[asyncio.Task[None], ...]:
    """What runs beside the requests, begun."""
    cards = services.settings.cards
    gates, residents = thermal_gates(pools, cards), services.fleet.residents
    watches: dict[str, Callable[[], Awaitable[None]]] = {
        "the look at models and keys": services.shelf.keep_fresh,
        "the writing of usage": services.accounting.keep_flushing,
        "the watch over the cards": lambda: watch_cards(pools, read_card, gates, cards.poll_s),
        "the watch over the engines": lambda: watch_engines(residents, transport),
        "the unloading of idle models": lambda: unload_idle(
            residents, 60 * services.settings.models.idle_unload_minutes
        ),
        "the flow-run server and the worker process": flows.companions.keep,
        "the removal of expired files": services.files.keep,
        "the removal of what passing requests have made": services.kept.keep_pruning,
        "the removal of old stored answers": lambda: keep_pruning(services.database, services.settings.responses),
        "the removal of the events of responses": lambda: keep_sweeping(
            BackgroundResponses(services.database), ResponseEvents(services.settings.home)
        ),
    }
    if flows.recording is not None:
        watches["the writing of lasting runs"] = flows.recording.keep
    if flows.api is not None:
        watches["the look at batches"] = BatchWatch(services).keep
        watches["the look at responses in the background"] = ResponseWatch(services).keep
        work_pools = flows.api.work_pools
        book = OrderBook(services.fleet.bounds, pools, services.settings.at(*ORDERS_FILE))
        book.restore()
        watches["the look at the work pools"] = lambda: book.keep(work_pools)
    return tuple(asyncio.create_task(keep_alive(name, watch), name=name) for name, watch in watches.items())


async def _close(
    services: Services, watchers: tuple[asyncio.Task[None], ...], access: AccessLog, transport: Transport
) -> None:
    """Stop what runs beside the requests, and write down what is only in memory."""
    for watcher in watchers:
        watcher.cancel()
    await asyncio.gather(*watchers, return_exceptions=True)
    services.files.close()
    await services.fleet.residents.close()
    await services.accounting.flush()
    if services.spool is not None:
        services.spool.close()
    if services.prefect_api is not None:
        await services.prefect_api.close()
    services.database.close()
    access.flush()
    await transport.close()
