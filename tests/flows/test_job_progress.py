"""A job's progress is told when there is something new, and its end where there was something to tell."""

from typing import Any

import pytest

from flows.job_progress import JobWatch, watched
from flows.job_steps import JobNotes
from flows.job_usage import JobUsage
from flows.record import RunRecorder
from flows.video import plan_video
from infra.errors import EngineFailed
from infra.run_usage import RunUsage
from infra.types import EngineId, KeyName, PoolId, RunId
from tests.fakes import make_entry
from workers.jobs.leases import JobLease
from workers.live import Engine
from workers.types import Capability, ModelFormat, Placement
from workers.wire import Working

ENTRY = make_entry("wan", format=ModelFormat.DIFFUSERS, capabilities=(Capability.VIDEO,))
RUN = RunId("5d2c0f6e-0000-4000-8000-000000000000")


class Looks:
    """An engine that has come so far."""

    def __init__(self) -> None:
        self.current: int | None = 0
        self.asked: list[list[Engine]] = []

    async def at(self, engines: list[Engine]) -> list[Working]:
        self.asked.append(engines)
        rows: list[dict[str, Any]] = [{"run": "another", "current": 1}]
        rows += [{"run": RUN, "current": self.current}] if self.current is not None else []
        same = {"step": "video-1", "phase": "denoising", "total": 20, "per_s": 0.0, "elapsed_s": 1.0}
        return [Working.model_validate(same | row) for row in rows]


@pytest.fixture
def told() -> list[tuple[float, str]]:
    return []


@pytest.fixture
def watch(told: list[tuple[float, str]]) -> JobWatch:
    async def tell(percent: float, words: str) -> None:
        told.append((percent, words))

    request: dict[str, Any] = {"prompt": "a", "n": 2, "seed": 1, "num_frames": 9, "fps": 8.0, "loras": []}
    plan = plan_video(request | {"response_format": "url"}, ENTRY)

    async def keep(_used: RunUsage) -> bool:
        raise AssertionError("nothing was used")

    usage = JobUsage(None, keep)
    notes = JobNotes(RunRecorder(RUN, plan, KeyName("ann")), lambda _line: None, usage.add)
    engine = Engine(EngineId("cpu/wan"), ENTRY, PoolId("cpu"), True, 1)
    placement = Placement("use", engine.pool, engine.id, "free")
    notes.placed(plan.steps[0], JobLease(engine, 1, 0, placement, 0.0, 0.0, lambda _lease: None))
    return JobWatch(notes, usage, Looks(), tell)  # type: ignore[arg-type]


async def test_only_what_is_new_is_told(watch: JobWatch, told: list[tuple[float, str]]) -> None:
    looks: Any = watch.looks
    for current in (5, 5, None, 10):
        looks.current = current
        await watch.look()
    assert told == [(12.5, "denoising: 5 of 40 (12 %)"), (25.0, "denoising: 10 of 40 (25 %)")]
    assert [[engine.id for engine in engines] for engines in looks.asked] == [["cpu/wan"]] * 4


async def test_a_good_end_is_all_of_it(watch: JobWatch, told: list[tuple[float, str]]) -> None:
    async with watched(watch):
        await watch.look()
    assert told[-1] == (100.0, "done")


async def test_a_bad_end_is_not(watch: JobWatch, told: list[tuple[float, str]]) -> None:
    async def fails() -> None:
        async with watched(watch):
            await watch.look()
            raise EngineFailed("it died")

    with pytest.raises(EngineFailed):
        await fails()
    assert len(told) == 1


async def test_who_had_nothing_to_tell_has_no_end_to_tell(watch: JobWatch, told: list[tuple[float, str]]) -> None:
    async with watched(watch):
        pass
    assert not told
