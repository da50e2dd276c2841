"""Where the runs under way are, and what is remembered of them between two looks."""

from typing import Any

from api.active import ActiveRuns
from api.progress import ProgressDesk
from infra.records import Attempt, RunRecord, StepRecord
from infra.tokens import Key
from infra.types import EngineId, KeyName, ModelName, PoolId, RunId
from tests.fakes import make_entry
from workers.live import Engine
from workers.types import Capability, ModelFormat
from workers.wire import Working

ENGINE = EngineId("cpu/wan")
ADMIN, KINDS = Key(KeyName("root"), "admin"), frozenset({Capability.VIDEO})
ENTRY = make_entry("wan", format=ModelFormat.DIFFUSERS, capabilities=(Capability.VIDEO,))


class Looks:
    """Engines that say what they are told to."""

    def __init__(self) -> None:
        self.rows: list[Working] = []
        self.asked: list[str] = []

    async def at(self, engines: Any) -> list[Working]:
        self.asked += [engine.id for engine in engines]
        return self.rows


class Catalogue:
    def find(self, name: str) -> Any:
        return {"wan": ENTRY}.get(name)


def working(run: str, current: int) -> Working:
    return Working(run=RunId(run), step="a", phase="denoising", current=current, total=20, per_s=1.0, elapsed_s=1.0)


def record(run: str, *steps: StepRecord, model: str = "wan", key: str = "ann") -> RunRecord:
    return RunRecord(RunId(run), "video", ModelName(model), KeyName(key), 0.0, [*steps])


def step(name: str, *, placed: bool = True) -> StepRecord:
    attempts = [Attempt(PoolId("cpu"), ENGINE, 1, "", [], 0.0)] if placed else []
    return StepRecord(name, "film_video", (), "pending", attempts)


async def test_between_two_of_its_videos_a_run_does_not_begin_anew() -> None:
    looks, active = Looks(), ActiveRuns()
    engine = Engine(ENGINE, ENTRY, PoolId("cpu"), True, 1, state="ready")
    desk = ProgressDesk(active, looks, {ENGINE: engine})  # type: ignore[arg-type]
    under_way = active.enter(record("r", step("a"), step("b", placed=False)))
    looks.rows = [working("r", 5), working("another", 9)]
    ((run, progress),) = await desk.of_kind(ADMIN, KINDS, Catalogue())  # type: ignore[arg-type]
    assert (run.run, progress.current, progress.total) == ("r", 5, 40)
    assert looks.asked == [ENGINE]
    steps = under_way.record.steps
    steps[0].status, steps[0].attempts[0].ended_at, looks.rows = "completed", 1.0, []
    ((_run, progress),) = await desk.of_kind(ADMIN, KINDS, Catalogue())  # type: ignore[arg-type]
    assert (progress.phase, progress.current, progress.total) == ("waiting", 20, 40)
    assert looks.asked == [ENGINE], "nobody works on it: nobody is asked"
    active.leave(under_way)
    assert await desk.of_kind(ADMIN, KINDS, Catalogue()) == []  # type: ignore[arg-type]
    assert await desk.of_run(RunId("r")) is None


async def test_the_oldest_comes_first_and_only_what_is_asked_for() -> None:
    active = ActiveRuns()
    desk = ProgressDesk(active, Looks(), {})  # type: ignore[arg-type]
    late, early, other, gone = record("late"), record("early"), record("x", model="chat"), record("y", key="ben")
    late.started_at = 5.0
    for each in (late, early, other, gone):
        active.enter(each)
    ann = Key(KeyName("ann"), "user")
    found = await desk.of_kind(ann, KINDS, Catalogue())  # type: ignore[arg-type]
    assert [run.run for run, _progress in found] == ["early", "late"]
    assert await desk.of_run(RunId("early")) is None, "no engine works on it yet"
