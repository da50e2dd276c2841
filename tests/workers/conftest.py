"""A fleet on real sockets, with engines that are servers on the same loop."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from infra.settings import LlamaSettings, ServerSettings
from tests.fakes import GIB, FakeChildren, make_pool
from workers.fleet import Fleet
from workers.live import Lease
from workers.loading import Loader
from workers.pools.card import CardPool
from workers.pools.service import ServiceChecks
from workers.residents import Residents
from workers.transport import Transport
from workers.types import Capability, Demand, ModelEntry

MakeFleet = Callable[..., Fleet]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, LoopFactory]:
    """The connections to engines are tried on the loop that the front has, too."""
    if item.path.stem in ("test_connection", "test_transport"):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture
async def children() -> AsyncIterator[FakeChildren]:
    made = FakeChildren()
    yield made
    await made.close()


@pytest.fixture
async def make_fleet(children: FakeChildren) -> AsyncIterator[MakeFleet]:
    transport = Transport()
    fleets: list[Fleet] = []

    def make(*pools: CardPool, needed_gib: float = 1.0, **server: float) -> Fleet:
        by_id = {pool.id: pool for pool in pools or (make_pool(),)}
        loader = Loader(children, transport, LlamaSettings(), "engine-key")
        residents = Residents(by_id, loader, children, LlamaSettings(), threads=1)

        async def needed_bytes(_entry: ModelEntry) -> int:
            return int(needed_gib * GIB)

        fleet = Fleet(by_id, residents, ServiceChecks(transport), ServerSettings(**server), needed_bytes)
        residents.adopt()
        fleets.append(fleet)
        return fleet

    yield make
    for fleet in fleets:
        await fleet.residents.close()
    await transport.close()


def demand(entry: ModelEntry, key: str | None = None) -> Demand:
    return Demand(entry.name, Capability.CHAT, key)


async def acquire(fleet: Fleet, entry: ModelEntry, key: str | None = None) -> Lease:
    return await fleet.acquire(demand(entry, key), entry)
