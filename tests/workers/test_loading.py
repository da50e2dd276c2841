"""From a launch to an engine that answers, with children that are servers on this loop."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from infra.errors import LoadFailed, NotInstalled
from infra.settings import LlamaSettings
from infra.supervisor.types import ChildState
from infra.types import EngineId
from tests.fakes import FakeChildren, make_entry, make_pool
from workers.live import Engine
from workers.loading import Loader, _why
from workers.pools.card import CardPool
from workers.transport import Transport

pytestmark = pytest.mark.enable_socket

ID = EngineId("cpu/m")


class Bench:
    """A loader, the card it loads on, and the engine to load."""

    def __init__(self, **settings: float) -> None:
        self.children = FakeChildren()
        self.transport = Transport()
        self.settings = LlamaSettings.model_validate(settings)
        self.loader = Loader(self.children, self.transport, self.settings, "engine-key")
        self.pool: CardPool = make_pool()
        self.engine = Engine(ID, make_entry(), self.pool.id, True, 2)

    async def load(self) -> None:
        launch = self.pool.launch(ID, self.engine.entry, self.settings, 1)
        await self.loader.load(self.engine, launch)

    async def close(self) -> None:
        await self.transport.close()
        await self.children.close()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.close()


async def test_an_engine_points_at_its_process_and_knows_its_key(bench: Bench) -> None:
    await bench.load()
    state = bench.children.states()[ID]
    engine = bench.engine
    assert (engine.state, engine.reason, engine.incarnation) == ("ready", "", 1)
    assert engine.base_url == f"http://127.0.0.1:{state.port}/v1"
    response = await bench.transport.post(engine, "/chat/completions", b"{}")
    assert response.status == 200
    response.close()
    assert "engine-key" not in " ".join(bench.children.specs[ID].argv)


async def test_a_slow_load_says_how_far_it_is(bench: Bench) -> None:
    bench.children.slow_s = 0.3
    loading = asyncio.create_task(bench.load())
    await asyncio.sleep(0.15)
    assert bench.engine.reason.startswith("loading for 0 s of at most ")
    await loading
    assert bench.engine.state == "ready"


async def test_a_child_that_ends_fails_with_its_last_words_and_is_gone(bench: Bench) -> None:
    bench.children.broken.add(ID)
    words = r"^model 'm' could not be loaded on cpu: not a GGUF file$"
    with pytest.raises(LoadFailed, match=words):
        await bench.load()
    assert bench.children.stopped == [ID]
    assert bench.children.states() == {}


async def test_a_missing_library_is_no_failure_of_the_load(bench: Bench) -> None:
    bench.children.broken.add(ID)
    bench.children.last_words = "error: not installed: diffusers models need the extra 'torch'"
    with pytest.raises(NotInstalled, match=r"^model 'm' cannot be loaded: diffusers models need the extra 'torch'$"):
        await bench.load()
    assert bench.children.stopped == [ID]
    assert bench.children.states() == {}


async def test_a_child_that_dies_while_it_loads(bench: Bench) -> None:
    bench.children.slow_s = 30
    loading = asyncio.create_task(bench.load())
    await asyncio.sleep(0.05)
    await bench.children.kill(ID)
    with pytest.raises(LoadFailed, match="killed"):
        await loading
    assert bench.children.stopped == [ID]


async def test_a_load_has_a_deadline() -> None:
    bench = Bench(load_base_s=0.2)
    bench.children.slow_s = 30
    with pytest.raises(LoadFailed, match="was not ready on cpu after 0 s"):
        async with asyncio.timeout(5):
            await bench.load()
    assert bench.children.states() == {}
    await bench.close()


async def test_a_load_that_is_called_off_leaves_no_process(bench: Bench) -> None:
    bench.children.slow_s = 30
    loading = asyncio.create_task(bench.load())
    await asyncio.sleep(0.05)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert bench.children.stopped == [ID]


async def test_another_incarnation_is_not_the_one_that_is_awaited(bench: Bench) -> None:
    await bench.load()
    await bench.children.kill(ID)
    await bench.children.restart(ID)
    with pytest.raises(LoadFailed):
        await bench.loader.wait_ready(bench.engine, 1)
    await bench.loader.wait_ready(bench.engine, 2)
    assert bench.engine.incarnation == 2


async def test_unloading_ends_the_process(bench: Bench) -> None:
    await bench.load()
    await bench.loader.unload(bench.engine)
    assert bench.children.states() == {}


@pytest.mark.parametrize(
    ("reason", "tail", "words"),
    [
        ("signal 9", ("loading", "out of memory", "  "), "out of memory"),
        (None, ("error: bad magic",), "bad magic"),
        ("exit code 1", ("loading weights",), "exit code 1"),
        (None, (), "it said nothing"),
    ],
)
def test_last_words(reason: str | None, tail: tuple[str, ...], words: str) -> None:
    assert _why(ChildState(name="x", status="backoff", reason=reason, log_tail=tail)) == words


def test_no_child_has_no_words() -> None:
    assert _why(None) == "its process is gone"
