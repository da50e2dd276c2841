import asyncio
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import Pause
from prefect.states import Completed, Crashed
from prefect.workers.base import BaseWorker

from flows.jobs import FLOWS
from workers.jobs import worker as module
from workers.jobs.live import End, Job
from workers.jobs.worker import CardWorker, Desk, HeadWorker, JobConfiguration, _bad_parameters, pid_of
from workers.pools.orders import CARD_TYPE, HEAD_TYPE


@pytest.mark.parametrize(("kind", "worker"), [(HEAD_TYPE, HeadWorker), (CARD_TYPE, CardWorker)])
def test_prefect_finds_our_types(kind: str, worker: type[HeadWorker]) -> None:
    import_module("workers.jobs.worker")
    assert BaseWorker.get_worker_class_from_type(kind) is worker


def test_a_pool_is_asked_for_nothing_but_its_device() -> None:
    assert HeadWorker.get_default_base_job_template()["variables"]["properties"] == {}
    assert set(CardWorker.get_default_base_job_template()["variables"]["properties"]) == {"device"}


async def test_it_is_not_started_by_hand() -> None:
    with pytest.raises(RuntimeError, match="are started by `coderai serve`"):
        await CardWorker(work_pool_name="cpu", name="w").setup()


async def test_a_jobs_configuration_comes_from_nowhere() -> None:
    """What a deployment or a run says of commands and environments is not even looked at."""
    run = FlowRun(id=uuid4(), flow_id=uuid4(), job_variables={"command": "id", "env": {"LD_PRELOAD": "x"}})
    nothing: Any = None
    made = await JobConfiguration.resolve_for_flow_run(run, client=nothing, work_pool=nothing, worker_name="w")
    assert (made.command, made.env, made.labels, made.name) == (None, {}, {}, None)


def test_parameters_are_held_against_the_flows_signature() -> None:
    assert _bad_parameters(FLOWS["chat"], {"request": {"model": "m"}}) is None
    for bad in ({}, {"request": "text"}, {"request": {}, "more": 1}):
        words = _bad_parameters(FLOWS["chat"], bad)
        assert words is not None
        assert words.startswith("the parameters do not fit the flow chat")


def test_the_pid_names_worker_and_run() -> None:
    run = uuid4()
    assert pid_of("coderai-cpu", run) == f"coderai-cpu:{run}"


class Bench:
    """A worker beside a Prefect whose runs are all in one state; `done` has what it executed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, state: StateType) -> None:
        self.run = FlowRun(id=uuid4(), flow_id=uuid4(), state=State(type=state))
        self.done: list[tuple[str, FlowRun]] = []
        self.states: list[StateType] = []
        self.freed = 0
        self.hold = asyncio.Event()
        nothing: Any = None
        self.worker = HeadWorker(work_pool_name="head", name="w", desk=Desk({}, nothing))
        self.worker._client = SimpleNamespace(  # type: ignore[assignment]  # the two things that are asked of it
            read_flow_run=self._read, set_flow_run_state=self._set
        )
        self.worker.freed = self._free
        monkeypatch.setattr(self.worker, "_to_its_end", self._execute)
        monkeypatch.setattr(module, "_AGAIN_S", (0.0,))

    @property
    def live(self) -> dict[UUID, Job]:
        assert self.worker._desk is not None
        return self.worker._desk.live

    async def begin(self) -> "asyncio.Task[Any]":
        task = asyncio.create_task(self.worker.run(self.run.model_copy(update={"name": "old"}), JobConfiguration()))
        await asyncio.sleep(0.01)
        return task

    async def _execute(self, run: FlowRun, job: Job, _desk: Desk) -> None:
        self.done.append((run.name, run))
        await self.hold.wait()

    async def _read(self, _run: UUID) -> FlowRun:
        return self.run

    async def _set(self, _run: UUID, state: "State[Any]") -> None:
        self.states.append(state.type)

    def _free(self) -> None:
        self.freed += 1


async def test_a_run_is_not_executed_twice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is resumed while the step before its suspension still runs; what it is like is read anew, then."""
    bench = Bench(monkeypatch, StateType.PENDING)
    first, second = await bench.begin(), await bench.begin()
    mine = bench.live[bench.run.id]
    assert len(bench.done) == 1
    bench.hold.set()
    await asyncio.gather(first, second)
    assert [name for name, _ in bench.done] == ["old", bench.run.name]
    assert (bench.live, bench.freed, mine.gone.is_set()) == ({}, 2, True)


async def test_what_has_ended_meanwhile_is_not_executed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, StateType.COMPLETED)
    both = [await bench.begin(), await bench.begin()]
    bench.hold.set()
    await asyncio.gather(*both)
    assert (len(bench.done), bench.live, bench.freed) == (1, {}, 2)


async def test_a_process_that_ends_begins_it_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, StateType.PENDING)
    ends: list[End | None] = []

    async def execute(_run: FlowRun, job: Job, _desk: Desk) -> None:
        await bench.hold.wait()
        ends.append(job.end)

    monkeypatch.setattr(bench.worker, "_to_its_end", execute)
    both = [await bench.begin(), await bench.begin()]
    bench.live[bench.run.id].stop("stopped")
    bench.hold.set()
    await asyncio.gather(*both)
    assert ends == ["stopped", "stopped"]


@pytest.mark.parametrize(
    ("said", "told"),
    [(Completed(), [StateType.COMPLETED]), (Crashed(), []), (None, [])],
    ids=["its work is done", "the process ends", "it has come to a step"],
)
async def test_a_suspension_that_comes_too_late_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, said: "State[Any] | None", told: list[StateType]
) -> None:
    bench = Bench(monkeypatch, StateType.PAUSED)
    job = Job(bench.run.id, said=said, end="stopped" if said is not None and said.is_crashed() else None)

    async def pausing() -> None:
        raise Pause

    task = asyncio.create_task(pausing())
    await asyncio.wait({task})
    await bench.worker._settle(job, task)
    assert bench.states == told
