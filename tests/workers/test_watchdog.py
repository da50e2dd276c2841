"""A frozen engine is ended and its model loaded anew; a healthy one is left alone."""

import asyncio

import pytest

from infra.settings import LlamaSettings
from tests.fakes import GIB, FakeChildren, make_entry, make_pool
from workers.loading import Loader
from workers.residents import Residents
from workers.transport import Transport
from workers.watchdog import watch_engines

pytestmark = pytest.mark.enable_socket


async def test_a_frozen_engine_is_ended_and_a_healthy_one_is_not() -> None:
    children, transport, pool = FakeChildren(), Transport(), make_pool()
    loader = Loader(children, transport, LlamaSettings(), "engine-key")
    residents = Residents({pool.id: pool}, loader, children, LlamaSettings(), threads=1)
    residents.adopt()
    for name in ("frozen", "healthy"):
        await residents.load(make_entry(name), pool.id, GIB)
    watching = asyncio.create_task(watch_engines(residents, transport, every_s=0.02, timeout_s=0.05))
    await asyncio.sleep(0.2)
    assert sorted(residents.engines) == ["cpu/frozen", "cpu/healthy"]
    children.frozen.add("cpu/frozen")
    async with asyncio.timeout(5):
        while "cpu/frozen" in children.states():
            await asyncio.sleep(0.01)
    assert list(residents.engines) == ["cpu/healthy"]
    assert list(pool.reserved) == ["cpu/healthy"]
    watching.cancel()
    await residents.close()
    await transport.close()
    await children.close()
