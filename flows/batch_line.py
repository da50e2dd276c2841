"""One request of a batch: planned by the front as it stands now, carried out with its leases; no task run."""

from collections.abc import Callable
from dataclasses import dataclass

from flows.execute import Executor
from flows.job_office import Office
from flows.job_steps import JobNotes, JobPlacer
from flows.plan import Plan, StepId
from flows.record import RunRecorder
from infra.types import Json, KeyName, PoolId, RunId
from tasks.types import TaskResult

_STREAMING = frozenset({"stream", "stream_format", "stream_options"})
"""Of a request: nobody is there to read a stream."""


@dataclass(frozen=True, slots=True)
class LineDoer:
    """Does the requests of one batch, whose flow run is `run`; `used` hears of the result of each step."""

    office: Office
    run: RunId
    flow: str
    key: KeyName
    device: PoolId | None
    used: Callable[[TaskResult], None]

    async def line(self, body: dict[str, Json]) -> bytes:
        """The answer's body.

        Raises:
            CoderAIError: the request cannot be met.
        """
        request = {field: value for field, value in body.items() if field not in _STREAMING}
        plan = Plan.from_json(await self.office.planner.plan(self.flow, request, self.key))
        notes = JobNotes(RunRecorder(self.run, plan, self.key), _say_nothing, self.used)
        placer = JobPlacer(
            self.office.slots, self.run, plan, self.key, _say_nothing, self.device, step=StepId("request")
        )
        stores = self.office.stores
        executor = Executor(self.office.tasks, self.office.transport, stores, outputs=stores[0])
        result = await executor.run(plan, placer, notes)
        assert isinstance(result.value, bytes), "a plan's last step gives the answer's bytes"
        return result.value


def _say_nothing(_line: str) -> None:
    """Fifty thousand requests would fill the run's log."""
