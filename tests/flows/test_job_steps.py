import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from flows.distribute import Share, part_steps
from flows.job_steps import JobNotes, JobPlacer, fits, kept_sizes
from flows.plan import Plan, Step, StepId, TaskName
from flows.record import RunRecorder
from flows.rerank import plan_rerank
from infra.errors import EngineFailed, InvalidRequest
from infra.types import EngineId, Json, KeyName, ModelName, PoolId, RunId
from tasks.types import TaskResult, Usage
from tests.fakes import make_entry
from workers.jobs.leases import JobLease
from workers.live import Engine, Lease
from workers.types import Capability, Demand, PassedOver, Placement
from workers.wire import LeaseAsk, LeaseOver

RUN, ANN = RunId("5d2c0f6e-0000-4000-8000-000000000000"), KeyName("ann")
ENGINE = EngineId("cpu/m")


def plan() -> Plan:
    return plan_rerank(
        {"query": "q", "documents": ["a"]}, make_entry(capabilities=(Capability.RERANK,), rerank_method="cosine")
    )


def lease() -> JobLease:
    entry = make_entry()
    placement = Placement("use", PoolId("cpu"), ENGINE, "it is free", (PassedOver("cuda-1", "too hot"),))
    return JobLease(Engine(ENGINE, entry, PoolId("cpu"), True, 1), 1, 0, placement, 2.0, 0.0, lambda _lease: None)


@dataclass
class Slots:
    """Gives leases and notes who asked."""

    asked: list[LeaseAsk] = field(default_factory=list)

    async def acquire(self, ask: LeaseAsk, waits: Callable[[str], None]) -> JobLease:
        self.asked.append(ask)
        waits("all 4 slots are taken")
        return lease()


@dataclass
class Notes:
    """Notes of a run of two steps, and what they wrote into its log."""

    lines: list[str] = field(default_factory=list)
    used: list[TaskResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = plan()
        self.recorder = RunRecorder(RUN, self.plan, ANN)
        self.notes = JobNotes(self.recorder, self.lines.append, self.used.append)

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.plan.steps


async def test_the_front_is_asked_for_the_step_of_the_run() -> None:
    slots, made, lines = Slots(), plan(), list[str]()
    step = made.steps[0]
    assert step.demand is not None
    await JobPlacer(slots, RUN, made, ANN, lines.append).of(step.id).acquire(step.demand, frozenset({(ENGINE, 2)}))
    ask = slots.asked[0]
    assert (ask.run, ask.step, ask.flow, ask.key, ask.model) == (RUN, "score", "rerank", "ann", "m")
    assert (ask.demand, ask.tried) == (replace(step.demand, patient=True), ((ENGINE, 2),))
    assert lines == ["step score: waits: all 4 slots are taken"], "the run's log says why nothing happens"


async def test_a_run_of_a_pool_for_one_card_stays_on_it() -> None:
    slots, made = Slots(), plan()
    demand = made.steps[0].demand
    assert demand is not None
    await JobPlacer(slots, RUN, made, ANN, print, PoolId("cuda-1")).of(StepId("score")).acquire(demand, frozenset())
    assert slots.asked[0].demand.pin == "cuda-1"


async def test_the_front_hears_how_many_steps_do_the_same_and_which_are_done() -> None:
    slots = Slots()
    rows = [Step(StepId(f"video-{number}"), TaskName("film"), {}) for number in range(1, 4)]
    made = Plan("video", ModelName("m"), (*rows, Step(StepId("collect"), TaskName("collect"), {})))
    recorder = RunRecorder(RUN, made, ANN)
    JobNotes(recorder, print, print).kept(rows[0])
    placer = JobPlacer(slots, RUN, made, ANN, print, record=recorder.record)
    await placer.of(StepId("video-2")).acquire(Demand(ModelName("m"), Capability.VIDEO), frozenset())
    await placer.of(StepId("another")).acquire(Demand(ModelName("m"), Capability.VIDEO), frozenset())
    assert [(ask.peers, ask.done) for ask in slots.asked] == [(3, ("video-1",)), (1, ())]


def test_the_log_says_where_and_why() -> None:
    notes = Notes()
    notes.notes.placed(notes.steps[0], lease())
    assert notes.lines == ["step score: on cpu/m after 2.0 s: it is free; passed over cuda-1: too hot"]


def test_a_finished_step_tells_its_lease_the_tokens() -> None:
    notes, held = Notes(), lease()
    notes.notes.placed(notes.steps[0], held)
    notes.notes.finished(notes.steps[0], TaskResult({}, Usage(5, 2, 1)))
    assert held.over == LeaseOver(prompt_tokens=5, completion_tokens=2, cached_tokens=1)
    assert notes.used == [TaskResult({}, Usage(5, 2, 1))]
    assert notes.recorder.record.prompt_tokens == 5


def test_a_finished_step_tells_its_lease_what_else_it_used() -> None:
    notes, held = Notes(), lease()
    notes.notes.placed(notes.steps[0], held)
    notes.notes.finished(notes.steps[0], TaskResult({}, units=12.5))
    assert held.over == LeaseOver(units=12.5)
    assert (notes.recorder.record.units, notes.recorder.record.prompt_tokens) == (12.5, None)


@pytest.mark.parametrize(
    ("error", "over"),
    [
        (EngineFailed("it died"), LeaseOver(failed=True)),
        (InvalidRequest("nonsense"), LeaseOver(failed=False)),
        (asyncio.CancelledError(), None),
    ],
)
def test_a_failed_step_says_whose_fault_it_was(error: BaseException, over: LeaseOver | None) -> None:
    notes, held = Notes(), lease()
    notes.notes.placed(notes.steps[0], held)
    notes.notes.failed(notes.steps[0], error, final=True)
    assert held.over == over


def test_a_step_that_is_tried_again_has_a_lease_of_its_own() -> None:
    notes, first, second = Notes(), lease(), lease()
    step = notes.steps[0]
    notes.notes.placed(step, first)
    notes.notes.failed(step, EngineFailed("it died"), final=False)
    notes.notes.placed(step, second)
    notes.notes.finished(step, TaskResult({}))
    assert (first.over, second.over) == (LeaseOver(failed=True), LeaseOver())
    assert notes.lines[1] == "step score: failed, is tried elsewhere: it died"


def test_a_kept_step_is_complete_in_the_record() -> None:
    notes = Notes()
    notes.notes.kept(notes.steps[0])
    record = notes.recorder.close(None, None)
    assert record.steps[0].status == "completed"
    assert "kept from an earlier try" in record.steps[0].attempts[0].reason
    assert "not run again" in notes.lines[0]


def test_what_needs_no_engine_needs_no_lease() -> None:
    notes, nothing = Notes(), None
    held: Lease | Any = nothing
    notes.notes.placed(notes.steps[1], held)
    notes.notes.finished(notes.steps[1], TaskResult(b"{}"))
    assert notes.lines == ["step rank: done by the worker process itself"]


@pytest.mark.parametrize(
    ("kept", "sizes", "fitting"),
    [
        ({}, None, ()),
        ({"score": {"scores": []}}, (), ()),
        ({"split": [[0, 3], [3, 2]], "part-1": {}}, (3, 2), (3, 2)),
        ({"split": {"ranges": [[0, 3], [3, 2]], "pieces": []}, "part-1": {}}, (3, 2), (3, 2)),
    ],
)
def test_kept_results_fit_the_cut_that_they_were_made_for(
    kept: dict[str, Json], sizes: tuple[int, ...] | None, fitting: tuple[int, ...]
) -> None:
    assert kept_sizes(kept) == sizes
    for cut in ((), (3, 2), (2, 3)):
        given = [Share(PoolId("a"), 0, size) for size in cut]
        steps = part_steps(given, make_entry(), Capability.EMBEDDINGS, TaskName("embed_part"), [{} for _ in cut])
        plan = Plan("embeddings", ModelName("m"), steps if cut else (Step(StepId("embed"), TaskName("generate")),))
        assert fits(kept, plan) is (cut == fitting)
