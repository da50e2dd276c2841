"""Runs a plan: steps side by side as their references allow, each on a lease, a failed one once more elsewhere.

Knows neither HTTP nor GPUs. What happens is told to an `Observer`.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from flows.plan import Plan, Step, StepId
from infra.errors import CoderAIError, EngineFailed, NoCapacity, ServiceDown
from infra.types import EngineId, Json
from tasks.channel import Channel
from tasks.types import Task, TaskCall, TaskResult
from workers.live import Lease
from workers.transport import Transport
from workers.types import Demand

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

    def placed(self, step: Step, lease: Lease | None) -> None:
        """A try of the step begins; without a lease the front does it itself."""
        ...

    def finished(self, step: Step, result: TaskResult) -> None:
        """The step has its result."""
        ...

    def failed(self, step: Step, error: BaseException, *, final: bool) -> None:
        """A try of the step failed or was cancelled; `final`: it will not be tried again."""
        ...


class Executor:
    """Runs plans with a fixed set of tasks."""

    def __init__(self, tasks: Mapping[str, Task], transport: Transport) -> None:
        self._tasks = tasks
        self._transport = transport

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

        async def follow(step: Step) -> None:
            for parent in step.refs.values():
                await done[parent].wait()
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
            try:
                call = TaskCall(inputs, self._transport, lease.engine if lease else None, channel)
                result = await self._tasks[step.task](call)
            except EngineFailed as error:
                spent = lease is None or len(tried) + 1 >= TRIES or (channel is not None and channel.started)
                observer.failed(step, error, final=spent)
                if lease is None:
                    raise
                lease.failed = True
                tried[lease.engine.id, lease.incarnation] = error.message
                if spent:
                    raise _tried_error(error, tried) from error
            except BaseException as error:
                observer.failed(step, error, final=True)
                raise
            else:
                observer.finished(step, result)
                return result
            finally:
                if lease is not None:
                    lease.release()

    async def _lease(self, step: Step, placer: Placer, tried: Mapping[tuple[EngineId, int], str]) -> Lease | None:
        if step.demand is None:
            return None
        try:
            return await placer.acquire(step.demand, frozenset(tried) if tried else _NOWHERE)
        except (NoCapacity, EngineFailed) as error:
            if not tried or isinstance(error, ServiceDown):
                raise
            first = next(iter(tried.values()))
            raise _tried_error(EngineFailed(f"{first}; and nowhere else: {error.message}"), tried) from error


def _inputs(step: Step, results: Mapping[StepId, TaskResult]) -> dict[str, Json]:
    """The step's own values, and the results that it refers to."""
    inputs = dict(step.inputs)
    for name, parent in step.refs.items():
        value = results[parent].value
        assert not isinstance(value, bytes), f"step {parent} gives bytes, which no step can read"
        inputs[name] = value
    return inputs


def _tried_error(error: EngineFailed, tried: Mapping[tuple[EngineId, int], str]) -> EngineFailed:
    """The same kind of failure, naming where the step was tried."""
    where = ", ".join(engine for engine, _incarnation in tried)
    return type(error)(f"{error.message} (tried at {where})", param=error.param, code=error.code)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended the group: one of ours before a cancellation that followed from it."""
    flat: list[BaseException] = []
    for error in group.exceptions:
        flat.append(_first(error) if isinstance(error, BaseExceptionGroup) else error)
    return next((error for error in flat if isinstance(error, CoderAIError)), flat[0])
