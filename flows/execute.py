"""Runs a plan: steps side by side as their references allow, each on a lease, a failed one once more elsewhere.

Knows neither HTTP nor GPUs. What happens is told to an `Observer`.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from flows.hedge import Pace, hedged
from flows.plan import Plan, Step, StepId
from infra.blobs import Blobs
from infra.clock import monotonic
from infra.errors import CoderAIError, EngineFailed, NoCapacity, ServiceDown
from infra.types import EngineId, Json, RunId
from tasks.channel import Channel
from tasks.types import Task, TaskCall, TaskResult
from workers.live import Lease
from workers.speeds import Speeds
from workers.transport import Transport
from workers.types import Demand
from workers.wire import Mark

_NOWHERE: frozenset[tuple[EngineId, int]] = frozenset()
TRIES = 2
"""A step is tried once, and once more elsewhere."""


class Placer(Protocol):
    """Gives leases for demands; `tried` are engine incarnations that must not be given again."""

    def acquire(self, demand: Demand, tried: frozenset[tuple[EngineId, int]]) -> Coroutine[Any, Any, Lease]:
        """A slot; waits for one where that is allowed, raises what the fleet raises."""
        ...


class Observer(Protocol):
    """Hears what happens to a run, in order; must neither block nor raise."""

    @property
    def run(self) -> RunId:
        """The run's id."""
        ...

    def placed(self, step: Step, lease: Lease | None) -> None:
        """A try of the step begins; without a lease the front does it itself."""
        ...

    def finished(self, step: Step, result: TaskResult, lease: Lease | None = None) -> None:
        """The step has its result, by the try on this lease."""
        ...

    def failed(self, step: Step, error: BaseException, lease: Lease | None = None, *, final: bool) -> None:
        """The try on this lease failed or was cancelled; `final`: this one will not be tried again."""
        ...


class Executor:
    """Runs plans with a fixed set of tasks. `stores` hold the blobs that inputs may refer to, `outputs` takes those
    that steps make; `speeds` is told what each engine has delivered."""

    hedges: ClassVar[bool] = True
    """Whether a late step that allows it is started twice."""

    def __init__(
        self,
        tasks: Mapping[str, Task],
        transport: Transport,
        stores: tuple[Blobs, ...] = (),
        speeds: Speeds | None = None,
        outputs: Blobs | None = None,
    ) -> None:
        self._tasks = tasks
        self._transport = transport
        self._stores = stores
        self._speeds = speeds
        self._outputs = outputs

    def run(
        self, plan: Plan, placer: Placer, observer: Observer, channel: Channel | None = None
    ) -> Coroutine[Any, Any, TaskResult]:
        """The last step's result, to be awaited.

        Raises:
            CoderAIError: the first step that failed for good; all others were cancelled. An engine's failure names
                every place where the step was tried.
        """
        if len(plan.steps) == 1:
            return self.step(plan.steps[0], {}, placer, observer, channel)
        return self._graph(plan, placer, observer, channel)

    async def _graph(self, plan: Plan, placer: Placer, observer: Observer, channel: Channel | None) -> TaskResult:
        results: dict[StepId, TaskResult] = {}
        done = {step.id: asyncio.Event() for step in plan.steps}
        pace = Pace()

        async def follow(step: Step) -> None:
            for parent in step.refs.values():
                await done[parent].wait()
            if step.items:
                results[step.id] = await self._part(step, results, placer, observer, pace)
            else:
                last = step is plan.steps[-1]
                results[step.id] = await self.step(step, results, placer, observer, channel if last else None)
            done[step.id].set()

        try:
            async with asyncio.TaskGroup() as group:
                for step in plan.steps:
                    group.create_task(follow(step))
        except BaseExceptionGroup as group_error:
            raise _first(group_error) from group_error
        return results[plan.steps[-1].id]

    async def _part(
        self, step: Step, results: Mapping[StepId, TaskResult], placer: Placer, observer: Observer, pace: Pace
    ) -> TaskResult:
        """One of several parts of a request, perhaps started twice."""
        began_s = monotonic()
        if step.hedge and self.hedges and step.demand is not None:
            again = replace(step, demand=replace(step.demand, home=None, idle=True))
            result = await hedged(
                lambda spare: self.step(again if spare else step, results, placer, observer, None), pace
            )
        else:
            result = await self.step(step, results, placer, observer, None)
        pace.note(monotonic() - began_s)
        return result

    async def step(
        self,
        step: Step,
        results: Mapping[StepId, TaskResult],
        placer: Placer,
        observer: Observer,
        channel: Channel | None,
    ) -> TaskResult:
        """One step, whose parents have their `results`; for those who do more around it to override."""
        inputs = _inputs(step, results)
        tried: dict[tuple[EngineId, int], str] = {}
        while True:
            lease = await self._lease(step, placer, tried)
            observer.placed(step, lease)
            began_s = monotonic()
            try:
                engine = lease.engine if lease else None
                mark = Mark(observer.run, step.id)
                call = TaskCall(inputs, self._transport, engine, channel, self._stores, self._outputs, mark)
                result = await self._tasks[step.task](call)
            except EngineFailed as error:
                spent = lease is None or len(tried) + 1 >= TRIES or (channel is not None and channel.started)
                observer.failed(step, error, lease, final=spent)
                if lease is None:
                    raise
                lease.failed = True
                tried[lease.engine.id, lease.incarnation] = error.message
                if spent:
                    raise _tried_error(step, error, tried) from error
            except BaseException as error:
                observer.failed(step, error, lease, final=True)
                raise
            else:
                observer.finished(step, result, lease)
                items = step.items if result.items is None else result.items
                self._delivered(items, lease, monotonic() - began_s)
                return result
            finally:
                if lease is not None:
                    lease.release()

    def _delivered(self, items: int, lease: Lease | None, seconds: float) -> None:
        if self._speeds is not None and items and lease is not None:
            self._speeds.note(lease.engine.id, lease.engine.model, items, seconds)

    async def _lease(self, step: Step, placer: Placer, tried: Mapping[tuple[EngineId, int], str]) -> Lease | None:
        if step.demand is None:
            return None
        try:
            return await placer.acquire(step.demand, frozenset(tried) if tried else _NOWHERE)
        except (NoCapacity, EngineFailed) as error:
            if not tried or isinstance(error, ServiceDown):
                raise
            first = next(iter(tried.values()))
            nowhere = EngineFailed(f"{first}; and nowhere else: {error.message}")
            raise _tried_error(step, nowhere, tried, nowhere=error.message) from error


def _inputs(step: Step, results: Mapping[StepId, TaskResult]) -> dict[str, Json]:
    """The step's own values, and the results that it refers to."""
    inputs = dict(step.inputs)
    for name, parent in step.refs.items():
        value = results[parent].value
        assert not isinstance(value, bytes), f"step {parent} gives bytes, which no step can read"
        inputs[name] = value
    return inputs


def _tried_error(
    step: Step, error: EngineFailed, tried: Mapping[tuple[EngineId, int], str], nowhere: str = ""
) -> EngineFailed:
    """The same kind of failure, naming where the step was tried; of a part also which it is, and every reason."""
    if step.items and step.refs:
        reasons = [f"at {engine}: {reason}" for (engine, _incarnation), reason in tried.items()]
        reasons += [f"nowhere else: {nowhere}"] if nowhere else []
        message = f"{step.id} of the request failed {'; '.join(reasons)}"
    else:
        message = f"{error.message} (tried at {', '.join(engine for engine, _incarnation in tried)})"
    return type(error)(message, param=error.param, code=error.code)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended the group: one of ours before a cancellation that followed from it."""
    flat: list[BaseException] = []
    for error in group.exceptions:
        flat.append(_first(error) if isinstance(error, BaseExceptionGroup) else error)
    return next((error for error in flat if isinstance(error, CoderAIError)), flat[0])
