"""The processes beside the front: started in order, followed, taken over, and what is said of them meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from api.companions import Companions
from infra.prefect_address import PrefectAddress
from infra.settings import Settings, load_settings
from infra.supervisor.types import ChildSpec
from tests.fakes import FakeChildren

pytestmark = pytest.mark.enable_socket


class Bench:
    """Children, and one companions' keeper after another, as fronts come and go."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.children = FakeChildren()
        self.address = PrefectAddress("Basic x")
        self.companions: Companions | None = None
        self._keeper: asyncio.Task[None] | None = None

    def settings(self, **flows: object) -> Settings:
        return load_settings(home=self.home, flows=flows)

    def begin(self, **flows: object) -> None:
        """A front begins."""
        self.address = PrefectAddress("Basic x")
        companions = Companions(self.children, self.settings(**flows), "token", self.address, look_s=0.01)
        self._keeper = asyncio.create_task(companions.keep())

    async def end(self) -> None:
        """The front ends; what it has started goes on."""
        assert self._keeper is not None
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        assert self._keeper.cancelled()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():
                await asyncio.sleep(0.005)

    async def up(self) -> None:
        """Both are there."""
        await self.until(lambda: self.address.url is not None and "worker" in self.children.states())

    def port(self) -> int | None:
        return self.children.states()["prefect"].port


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    await made.end()
    await made.children.close()


async def test_the_worker_is_started_once_the_server_answers(bench: Bench) -> None:
    bench.children.slow_s = 0.2
    bench.begin()
    await bench.until(lambda: bench.children.started == ["prefect"])
    assert (bench.address.url, bench.address.reason) == (None, "it is starting")
    await bench.up()
    assert bench.children.started == ["prefect", "worker"]
    assert (bench.address.url, bench.address.reason) == (f"http://127.0.0.1:{bench.port()}", "")
    assert bench.children.specs["worker"].env["PREFECT_API_URL"] == f"{bench.address.url}/flows/api"


async def test_a_server_that_dies_is_gone_at_once_and_its_worker_follows_it_to_another_port(bench: Bench) -> None:
    bench.begin()
    await bench.up()
    before = bench.address.url
    await bench.children.kill("prefect")
    await bench.until(lambda: bench.address.url is None)
    assert bench.address.reason == "it has ended and is started again: killed"
    assert bench.children.stopped == []
    await bench.children.restart("prefect")
    await bench.until(lambda: bench.children.started.count("worker") == 2)
    assert bench.address.url not in (None, before)
    assert bench.children.stopped == ["worker"]
    assert bench.children.specs["worker"].env["PREFECT_API_URL"] == f"{bench.address.url}/flows/api"


async def test_a_server_that_is_given_up_says_why(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.begin()
    await bench.up()
    bench.children.quarantine("prefect")
    await bench.until(lambda: bench.address.url is None)
    assert bench.address.reason == (
        "it was given up after it had ended too often: signal 6; mend that and restart `coderai serve`"
    )
    bench.children.quarantine("worker")
    await asyncio.sleep(0.05)
    assert bench.children.started == ["prefect", "worker"]
    assert caplog.text.count("given up") == 1


async def test_a_worker_that_is_given_up_is_told_of_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.begin()
    await bench.up()
    for _ in range(3):
        bench.children.quarantine("worker")
        await asyncio.sleep(0.02)
    assert caplog.text.count("worker: it was given up") == 1
    assert bench.address.url is not None


async def test_a_restarted_front_takes_both_over(bench: Bench) -> None:
    bench.begin()
    await bench.up()
    url = bench.address.url
    await bench.end()
    bench.begin()
    await bench.up()
    assert bench.address.url == url
    assert bench.children.started == ["prefect", "worker"]
    assert bench.children.stopped == []


async def test_a_restarted_front_with_other_settings_starts_anew_what_they_concern(bench: Bench) -> None:
    bench.begin()
    await bench.up()
    await bench.end()
    bench.begin(keep_days=1)
    await bench.until(lambda: bench.children.started == ["prefect", "worker"] * 2)
    assert bench.children.stopped == ["prefect", "worker"]


async def test_a_worker_that_somebody_stopped_comes_back(bench: Bench) -> None:
    bench.begin()
    await bench.up()
    await bench.children.stop("worker")
    await bench.until(lambda: bench.children.started.count("worker") == 2)


async def test_switched_off_nothing_runs_and_leftovers_are_stopped(bench: Bench) -> None:
    bench.begin()
    await bench.up()
    await bench.end()
    bench.begin(server="off")
    await bench.until(lambda: bench.children.states() == {})
    assert sorted(bench.children.stopped) == ["prefect", "worker"]
    assert (bench.address.url, bench.address.reason) == (None, "it is switched off: flows.server is 'off'")
    await asyncio.sleep(0.05)
    assert bench.children.started == ["prefect", "worker"]


async def test_what_a_child_is_found_by_tells_no_secret(bench: Bench) -> None:
    bench.begin()
    await bench.up()
    for spec in bench.children.specs.values():
        assert isinstance(spec, ChildSpec)
        assert isinstance(spec.note, dict)
        assert [len(str(value)) for value in spec.note.values()] == [64]
