"""The executor: side by side, once more elsewhere, cancel the rest, tell the observer."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from flows.execute import Executor
from flows.plan import Plan, Step, StepId, TaskName
from infra.errors import EngineFailed, InvalidRequest, NoRoom, ServiceDown
from infra.types import EngineId, ModelName, PoolId, RunId
from tasks.types import Task, TaskCall, TaskResult
from workers.live import Engine, Lease
from workers.speeds import Speeds
from workers.transport import Transport
from workers.types import Capability, Demand, ModelEntry, ModelFormat, Placement

DEMAND = Demand(ModelName("m"), Capability.CHAT)


class FakePlacer:
    """Gives the first of its engines that was not tried; counts what is out."""

    def __init__(self, *pools: str) -> None:
        entry = ModelEntry(
            name=ModelName("m"), format=ModelFormat.GGUF, capabilities=(Capability.CHAT,), path=Path("/m.gguf")
        )
        self.engines = [
            Engine(EngineId(f"{pool}/m"), entry, PoolId(pool), local=True, slots=1, incarnation=1) for pool in pools
        ]
        self.out = 0
        self.failed: list[str] = []

    async def acquire(self, _demand: Demand, tried: frozenset[tuple[EngineId, int]]) -> Lease:
        for engine in self.engines:
            if (engine.id, engine.incarnation) not in tried:
                self.out += 1
                return Lease(engine, 1, 0, Placement("use", engine.pool, engine.id, "resident"), 0.0, 0.0, self._back)
        raise NoRoom("no pool can take it")

    def _back(self, lease: Lease) -> None:
        self.out -= 1
        if lease.failed:
            self.failed.append(lease.engine.id)


class Story:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.run = RunId("00000000-0000-0000-0000-000000000001")

    def placed(self, step: Step, lease: Lease | None) -> None:
        self.lines.append(f"{step.id} at {lease.engine.pool if lease else 'front'}")

    def finished(self, step: Step, _result: TaskResult, _lease: Lease | None = None) -> None:
        self.lines.append(f"{step.id} done")

    def failed(self, step: Step, error: BaseException, _lease: Lease | None = None, *, final: bool) -> None:
        self.lines.append(f"{step.id} {type(error).__name__}{' final' if final else ''}")


class FakeChannel:
    """A client's end that remembers."""

    def __init__(self) -> None:
        self.data = b""

    @property
    def started(self) -> bool:
        return bool(self.data)

    async def write(self, data: bytes) -> None:
        self.data += data


def step(name: str, task: str, *, leased: bool = True, **refs: str) -> Step:
    return Step(
        StepId(name), TaskName(task), {}, {key: StepId(of) for key, of in refs.items()}, DEMAND if leased else None
    )


def plan(*steps: Step) -> Plan:
    return Plan("test", ModelName("m"), steps)


async def run(
    tasks: Mapping[str, Task], made: Plan, placer: FakePlacer, channel: FakeChannel | None = None
) -> tuple[TaskResult, list[str]]:
    transport, story = Transport(), Story()
    try:
        result = await Executor(tasks, transport).run(made, placer, story, channel)
    finally:
        await transport.close()
        assert placer.out == 0, "every lease comes back"
    return result, story.lines


async def work(call: TaskCall) -> TaskResult:
    return TaskResult(call.leased().pool)


async def test_one_step_runs_on_its_lease() -> None:
    result, story = await run({"work": work}, plan(step("a", "work")), FakePlacer("x"))
    assert result.value == "x"
    assert story == ["a at x", "a done"]


async def test_steps_run_side_by_side_and_the_last_reads_them() -> None:
    meeting = asyncio.Barrier(2)

    async def meet(_call: TaskCall) -> TaskResult:
        await meeting.wait()  # neither returns unless both run
        return TaskResult(1)

    async def add(call: TaskCall) -> TaskResult:
        left, right = call.inputs["left"], call.inputs["right"]
        assert isinstance(left, int)
        assert isinstance(right, int)
        return TaskResult(left + right)

    made = plan(step("a", "meet"), step("b", "meet"), step("sum", "add", leased=False, left="a", right="b"))
    result, story = await run({"meet": meet, "add": add}, made, FakePlacer("x"))
    assert result.value == 2
    assert story[-2:] == ["sum at front", "sum done"]


async def test_a_failed_step_is_tried_once_elsewhere() -> None:
    async def flaky(call: TaskCall) -> TaskResult:
        if call.leased().pool == "x":
            raise EngineFailed("x died")
        return TaskResult(call.leased().pool)

    placer = FakePlacer("x", "y", "z")
    result, story = await run({"flaky": flaky}, plan(step("a", "flaky")), placer)
    assert result.value == "y"
    assert story == ["a at x", "a EngineFailed", "a at y", "a done"]
    assert placer.failed == ["x/m"]


async def test_a_second_failure_names_where_it_was_tried() -> None:
    async def broken(call: TaskCall) -> TaskResult:
        raise EngineFailed(f"{call.leased().pool} died")

    with pytest.raises(EngineFailed, match=r"y died \(tried at x/m, y/m\)"):
        await run({"broken": broken}, plan(step("a", "broken")), FakePlacer("x", "y", "z"))


async def test_with_nowhere_else_the_error_says_so() -> None:
    async def broken(_call: TaskCall) -> TaskResult:
        raise EngineFailed("x died")

    with pytest.raises(EngineFailed, match=r"x died; and nowhere else: no pool can take it \(tried at x/m\)"):
        await run({"broken": broken}, plan(step("a", "broken")), FakePlacer("x"))


async def test_the_request_s_own_fault_is_not_tried_again() -> None:
    calls = 0

    async def wrong(_call: TaskCall) -> TaskResult:
        nonlocal calls
        calls += 1
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        await run({"wrong": wrong}, plan(step("a", "wrong")), FakePlacer("x", "y"))
    assert calls == 1


async def test_a_stream_that_has_begun_is_not_begun_anew() -> None:
    async def half(call: TaskCall) -> TaskResult:
        assert call.channel is not None
        await call.channel.write(b"data: 1\n\n")
        raise EngineFailed("x died")

    channel = FakeChannel()
    with pytest.raises(EngineFailed, match="tried at x/m"):
        await run({"half": half}, plan(step("a", "half")), FakePlacer("x", "y"), channel)
    assert channel.data == b"data: 1\n\n"


async def test_a_failure_cancels_the_others_and_is_the_one_that_is_raised() -> None:
    async def hang(_call: TaskCall) -> TaskResult:
        await asyncio.Event().wait()
        raise AssertionError

    async def wrong(_call: TaskCall) -> TaskResult:
        await asyncio.sleep(0)
        raise InvalidRequest("no")

    transport, story, placer = Transport(), Story(), FakePlacer("x")
    made = plan(step("a", "hang"), step("b", "wrong"), step("c", "hang", of="a"))
    with pytest.raises(InvalidRequest, match="no"):
        await Executor({"hang": hang, "wrong": wrong}, transport).run(made, placer, story)
    await transport.close()
    assert "a CancelledError final" in story.lines
    assert not any(line.startswith("c ") for line in story.lines)
    assert placer.out == 0


def part(name: str, task: str, *, hedge: bool = False) -> Step:
    demand = replace(DEMAND, home=PoolId("x"))
    return Step(StepId(name), TaskName(task), {}, {"split": StepId("split")}, demand, items=8, hedge=hedge)


async def gather(_call: TaskCall) -> TaskResult:
    return TaskResult([])


async def test_a_part_that_fails_twice_is_named_with_every_reason_and_its_siblings_are_cancelled() -> None:
    async def work_or_hang(call: TaskCall) -> TaskResult:
        if "hang" in call.inputs:
            await asyncio.Event().wait()
        raise EngineFailed(f"{call.leased().pool} died")

    hanging = replace(part("part-1", "work"), inputs={"hang": True})
    made = plan(step("split", "gather", leased=False), hanging, part("part-2", "work"))
    transport, story, placer = Transport(), Story(), FakePlacer("x", "y")
    words = "part-2 of the request failed at x/m: x died; at y/m: y died"
    with pytest.raises(EngineFailed, match=f"^{words}$"):
        await Executor({"work": work_or_hang, "gather": gather}, transport).run(made, placer, story)
    with pytest.raises(EngineFailed, match="part-2 of the request failed at x/m: x died; nowhere else: no pool can"):
        await Executor({"work": work_or_hang, "gather": gather}, transport).run(made, FakePlacer("x"), story)
    await transport.close()
    assert "part-1 CancelledError final" in story.lines
    assert placer.out == 0


class SlowX:
    """A task that hangs at the engine x, after the first part."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, call: TaskCall) -> TaskResult:
        self.asked.append(call.leased().pool)
        if len(self.asked) == 2:
            await asyncio.Event().wait()
        return TaskResult(call.leased().pool)


class Idle(FakePlacer):
    """Gives y to whoever asks for an idle engine, else x."""

    async def acquire(self, demand: Demand, tried: frozenset[tuple[EngineId, int]]) -> Lease:
        assert (demand.home is None) == demand.idle
        taken = frozenset([(self.engines[0].id, 1)]) if demand.idle else tried
        return await super().acquire(demand, taken)


async def test_a_late_part_is_started_once_more_on_an_idle_engine() -> None:
    task = SlowX()
    parts = [part(f"part-{number}", "slow", hedge=True) for number in (1, 2)]
    made = plan(step("split", "gather", leased=False), *parts, step("merge", "gather", leased=False, a="part-2"))
    result, story = await run({"slow": task, "gather": gather}, made, Idle("x", "y"))
    assert result.value == []
    assert task.asked == ["x", "x", "y"]
    assert story[-5:] == ["part-2 at y", "part-2 done", "part-2 CancelledError final", "merge at front", "merge done"]


async def test_what_an_engine_delivered_is_noted() -> None:
    transport, speeds = Transport(), Speeds()
    made = plan(step("split", "gather", leased=False), part("part-1", "work"))
    await Executor({"work": work, "gather": gather}, transport, speeds=speeds).run(made, FakePlacer("x"), Story())
    await transport.close()
    assert (speeds.of(EngineId("x/m"), ModelName("m")) or 0) > 0


@pytest.mark.parametrize(("done", "noted"), [(None, True), (4, True), (0, False)])
async def test_what_a_part_says_that_it_did_is_what_counts(done: int | None, noted: bool) -> None:
    async def given(_call: TaskCall) -> TaskResult:
        return TaskResult([], items=done)

    transport, speeds = Transport(), Speeds()
    made = plan(step("split", "gather", leased=False), part("part-1", "given"))
    await Executor({"given": given, "gather": gather}, transport, speeds=speeds).run(made, FakePlacer("x"), Story())
    await transport.close()
    assert (speeds.of(EngineId("x/m"), ModelName("m")) is not None) is noted


async def test_a_dead_service_is_named_as_such() -> None:
    class Dead(FakePlacer):
        async def acquire(self, demand: Demand, tried: frozenset[tuple[EngineId, int]]) -> Lease:
            if tried:
                raise ServiceDown("configured service_url http://box is not answering its health check")
            return await super().acquire(demand, tried)

    async def broken(_call: TaskCall) -> TaskResult:
        raise EngineFailed("connection reset")

    with pytest.raises(ServiceDown, match=r"^configured service_url http://box is not answering its health check$"):
        await run({"broken": broken}, plan(step("a", "broken")), Dead("x"))
