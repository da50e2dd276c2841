"""Far services: their address, their key, and a health check that is asked once for all who wait."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from infra.errors import ServiceDown
from tests.fakes import make_entry
from workers.live import Engine
from workers.pools.service import CHECK_EVERY_S, ServiceChecks, service_base, service_engine
from workers.transport import Transport
from workers.types import ModelEntry, ModelFormat

pytestmark = pytest.mark.enable_socket


@dataclass
class Time:
    """A clock that stands still until it is moved."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Service:
    """A far service: how often its models were asked for, by whom, and what it answers."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: list[str | None] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.headers.get("Authorization"))
        await asyncio.sleep(0.02)
        return web.Response(status=self.status)

    def engine(self, **fields: object) -> Engine:
        return service_engine(far(self.url, **fields))


def far(url: str, **fields: object) -> ModelEntry:
    return make_entry("far", path=None, format=ModelFormat.SERVICE, service_url=url, **fields)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service()
    app = web.Application()
    app.router.add_get("/v1/models", made.handle)
    async with TestServer(app, host="127.0.0.1") as server:
        made.url = str(server.make_url("/")).rstrip("/")
        yield made


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def checks(time: Time) -> AsyncIterator[ServiceChecks]:
    transport = Transport()
    yield ServiceChecks(transport, time)
    await transport.close()


@pytest.mark.parametrize("url", ["http://box:1", "http://box:1/", "http://box:1/v1", "http://box:1/v1/"])
def test_the_root_is_found_whatever_the_url_ends_in(url: str) -> None:
    assert service_base(url) == "http://box:1/v1"


def test_an_engine_of_a_far_service() -> None:
    engine = service_engine(far("https://box:8443/llm", api_key="hush", max_instances=7))
    assert (engine.id, engine.pool) == ("service:box:8443/far", "service:box:8443")
    assert (engine.base_url, engine.slots, engine.local) == ("https://box:8443/llm/v1", 7, False)
    assert engine.headers["Authorization"] == "Bearer hush"
    assert "Authorization" not in service_engine(far("http://box")).headers


async def test_one_check_for_all_who_wait_and_then_none_for_a_while(
    service: Service, checks: ServiceChecks, time: Time
) -> None:
    engine = service.engine(api_key="hush")
    assert not checks.alive(engine)
    await asyncio.gather(*(checks.ensure(engine) for _ in range(5)))
    assert service.asked == ["Bearer hush"]
    time.now_s += CHECK_EVERY_S - 1
    assert checks.alive(engine)
    await checks.ensure(engine)
    assert len(service.asked) == 1
    time.now_s += 1
    assert not checks.alive(engine)
    await checks.ensure(engine)
    assert len(service.asked) == 2


@pytest.mark.parametrize("status", [401, 404, 405, 301])
async def test_a_refusal_is_an_answer_too(service: Service, checks: ServiceChecks, status: int) -> None:
    service.status = status
    await checks.ensure(service.engine())


async def test_a_service_that_is_down_is_asked_anew_each_time(service: Service, checks: ServiceChecks) -> None:
    service.status = 502
    engine = service.engine()
    words = rf"^configured service_url {service.url} is not answering its health check \(HTTP 502\)$"
    for _ in range(2):
        with pytest.raises(ServiceDown, match=words):
            await checks.ensure(engine)
        assert (engine.told_state, engine.state) == ("down", "ready"), "the next request asks again"
    service.status = 200
    await checks.ensure(engine)
    assert (engine.told_state, engine.reason) == ("ready", "")
    other = service.engine()  # another model of the same service, which failed there, too
    other.reason = "it is not answering its health check"
    assert checks.alive(other)
    assert other.told_state == "ready"
    assert len(service.asked) == 3


async def test_after_a_failed_request_the_next_one_asks_first(service: Service, checks: ServiceChecks) -> None:
    engine = service.engine()
    await checks.ensure(engine)
    checks.forget(engine)
    checks.forget(engine)
    assert not checks.alive(engine)
    await checks.ensure(engine)
    assert len(service.asked) == 2


async def test_who_leaves_does_not_end_the_check_of_the_others(service: Service, checks: ServiceChecks) -> None:
    engine = service.engine()
    early, late = (asyncio.create_task(checks.ensure(engine)) for _ in range(2))
    await asyncio.sleep(0.005)
    early.cancel()
    await late
    assert checks.alive(engine)
    assert len(service.asked) == 1
