"""A model that nobody asks for leaves memory."""

import asyncio

import pytest

from infra.settings import LlamaSettings
from tests.fakes import GIB, FakeChildren, make_entry, make_pool
from workers.idle import unload_idle
from workers.loading import Loader
from workers.residents import Residents
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket


async def test_what_is_idle_long_enough_goes_and_the_rest_stays() -> None:
    now_s = 1000.0
    children, transport, pool = FakeChildren(), Transport(), make_pool()
    loader = Loader(children, transport, LlamaSettings(), "engine-key")
    residents = Residents({pool.id: pool}, loader, children, LlamaSettings(), threads=1, clock=lambda: now_s)
    residents.adopt()
    for name, kept in (("idle", False), ("busy", False), ("kept", True)):
        await residents.load(make_entry(name, keep_resident=kept), pool.id, GIB)
    residents.of(make_entry("busy").name)[0].in_flight = 1
    watching = asyncio.create_task(unload_idle(residents, 60.0, every_s=0.01, clock=lambda: now_s))
    await asyncio.sleep(0.05)
    now_s += 59
    await asyncio.sleep(0.05)
    assert sorted(residents.engines) == ["cpu/busy", "cpu/idle", "cpu/kept"]
    now_s += 1
    async with asyncio.timeout(5):
        while "cpu/idle" in children.states():
            await asyncio.sleep(0.01)
    assert sorted(residents.engines) == ["cpu/busy", "cpu/kept"]
    watching.cancel()
    await residents.close()
    await transport.close()
    await children.close()


async def test_zero_minutes_mean_never() -> None:
    now_s = 0.0
    children, transport, pool = FakeChildren(), Transport(), make_pool()
    loader = Loader(children, transport, LlamaSettings(), "engine-key")
    residents = Residents({pool.id: pool}, loader, children, LlamaSettings(), threads=1, clock=lambda: now_s)
    await residents.load(make_entry("m"), pool.id, GIB)
    watching = asyncio.create_task(unload_idle(residents, 0.0, every_s=0.01, clock=lambda: now_s))
    now_s = 1e9
    await asyncio.sleep(0.05)
    assert sorted(residents.engines) == ["cpu/m"]
    watching.cancel()
    await residents.close()
    await transport.close()
    await children.close()
