"""Carries out a job's plan as task runs of Prefect: one a step, with the edges of the run's graph.

What a task run is, is said where the flows are; it is handed in.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from uuid import UUID, uuid4

from prefect import Task
from prefect.client.schemas.objects import RunInput, State, TaskRunResult
from prefect.states import Cancelled, Completed, Failed
from prefect.task_engine import run_task_async

from flows.execute import Executor, Observer, Placer
from flows.job_office import Office
from flows.job_steps import JobNotes, JobPlacer
from flows.plan import Step, StepId
from flows.record import describe
from infra.types import Json
from tasks.channel import Channel
from tasks.types import TaskResult

Work = Callable[[], Coroutine[Any, Any, State[None]]]
"""Does one step, and says how it ended."""


class JobExecutor(Executor):
    """Makes each step a task run, with its edges; a step whose result is kept is not run again."""

    hedges = False  # a step is one task run

    def __init__(self, office: Office, perform: Task[..., Any], notes: JobNotes, kept: Mapping[str, Json]) -> None:
        """`perform`: the task that every step becomes a run of; `kept`: results of an earlier try, by their steps."""
        super().__init__(office.tasks, office.transport, office.stores, outputs=office.stores[0])
        self._perform = perform
        self._files = office.files
        self._notes = notes
        self._kept = kept
        self._task_runs: dict[StepId, UUID] = {}

    async def step(
        self,
        step: Step,
        results: Mapping[StepId, TaskResult],
        placer: Placer,
        observer: Observer,
        channel: Channel | None,
    ) -> TaskResult:
        """See `Executor.step`."""
        assert isinstance(placer, JobPlacer)
        ours = placer.of(step.id)
        outcome: list[TaskResult | BaseException] = []

        async def work() -> State[None]:
            try:
                if step.id in self._kept:
                    self._notes.kept(step)
                    outcome.append(TaskResult(self._kept[step.id]))
                    return Completed(name="Kept", message="its result is kept from an earlier try")
                result = await super(JobExecutor, self).step(step, results, ours, observer, channel)
                if not isinstance(result.value, bytes):
                    await asyncio.to_thread(self._files.keep_step, ours.run, step.id, result.value)
            except BaseException as error:  # noqa: BLE001  # raised again below, where Prefect does not see it
                outcome.append(error)
                cancelled = isinstance(error, asyncio.CancelledError)
                return Cancelled(message="it was cancelled") if cancelled else Failed(message=describe(error))
            outcome.append(result)
            return Completed()

        await self._as_task_run(step, work)
        end = outcome[0]
        if isinstance(end, BaseException):
            raise end
        return end

    async def _as_task_run(self, step: Step, work: Work) -> None:
        self._task_runs[step.id] = uuid4()
        parents: set[RunInput] = {TaskRunResult(id=self._task_runs[parent]) for parent in step.refs.values()}
        await run_task_async(
            self._perform.with_options(name=step.id, task_run_name=step.id),
            task_run_id=self._task_runs[step.id],
            parameters={"work": work, "parents": None},
            dependencies={"parents": parents},
            return_type="state",
        )
