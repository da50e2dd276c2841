"""Prefect workers of our own types: they run our own flows, by name, as tasks of this process, and nothing else.

Prefect's API can be told to run anything: an entrypoint, pull steps, an environment, a command, job variables. Nothing
of that is read here. A deployment is ours if its name is, its flow is the one that stands in our code.
"""

import asyncio
import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self
from uuid import UUID

import httpx
from anyio.abc import TaskStatus
from prefect import Flow
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, State, WorkPool
from prefect.exceptions import ParameterTypeError, Pause, PrefectException
from prefect.flow_engine import run_flow_async
from prefect.states import Cancelled, Crashed, Failed
from prefect.workers.base import BaseJobConfiguration, BaseVariables, BaseWorker, BaseWorkerResult

from infra.types import PoolId
from workers.jobs.live import CURRENT, End, Job
from workers.pools.orders import CARD_TYPE, HEAD_TYPE

if TYPE_CHECKING:
    from prefect.client.schemas.responses import DeploymentResponse

log = logging.getLogger(__name__)

_AGAIN_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Pauses before each try to tell a Prefect that was away how a run went; it starts within half a minute."""
BEAT_S = 10
"""Seconds between heartbeats; without three of them Prefect shows a worker as offline."""


class JobConfiguration(BaseJobConfiguration):
    """Made of nothing that came from Prefect's API."""

    @classmethod
    async def resolve_for_flow_run(
        cls,
        flow_run: FlowRun,
        *,
        client: PrefectClient,
        work_pool: WorkPool,
        worker_name: str,
        worker_id: UUID | None = None,
        deployment: "DeploymentResponse | None" = None,
    ) -> Self:
        """The configuration of every run: none. Templates, variables and blocks are not even read."""
        configuration = cls()
        configuration._related_objects = {"flow-run": flow_run}  # what its events name
        return configuration


DEVICE: dict[str, Any] = {
    "title": "Device",
    "description": "The card of this machine that runs of this pool stay on, by the name of its own pool: cpu, ...",
    "type": "string",
}
"""The one thing that a pool of the card type has to say, as JSON schema."""


class Result(BaseWorkerResult):
    """Prefect's receipt; the run has written its own state."""


class Ours(Protocol):
    """Which deployments are this install's."""

    async def flow_of(self, client: PrefectClient, deployment: UUID | None) -> str | None:
        """The name of the flow that the deployment stands for; None if it is none of ours."""
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """What the process gives its workers: the flows they may run, and the list of the jobs under way."""

    flows: Mapping[str, Flow[..., Any]]
    ours: Ours
    live: dict[UUID, Job] = field(default_factory=dict)


class HeadWorker(BaseWorker[JobConfiguration, BaseVariables, Result]):
    """Runs jobs as tasks of this process. Without a desk (Prefect's own command line) it does not start.

    As it stands it is the worker of the pool `head`.
    """

    type = HEAD_TYPE
    job_configuration = JobConfiguration
    variables: ClassVar[dict[str, Any]] = {}
    """What a pool of this type may say, as properties of a JSON schema."""
    _description = "Runs CoderAI's own flows. Its workers are started by `coderai serve`."
    _documentation_url = ""
    _logo_url = ""

    def __init__(self, *args: Any, desk: Desk | None = None, device: PoolId | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.freed: Callable[[], None] = _nothing
        """Called when a job has ended: another may take its place."""
        self._desk = desk
        self._device = device

    @property
    def pool_id(self) -> UUID | None:
        """The id of its pool; None until Prefect has answered for the first time."""
        return self._work_pool.id if self._work_pool is not None else None

    @classmethod
    def get_default_base_job_template(cls) -> dict[str, Any]:
        """What a new pool of this type has; none of Prefect's own variables, since none is followed."""
        return {
            # Prefect wants something here, also where there are no variables.
            "job_configuration": {"runs": "CoderAI's own flows"}
            | {name: f"{{{{ {name} }}}}" for name in cls.variables},
            "variables": {"type": "object", "properties": copy.deepcopy(cls.variables)},
        }

    async def setup(self) -> None:
        """See `BaseWorker.setup`.

        Raises:
            RuntimeError: it was started by hand.
        """
        if self._desk is None:
            raise RuntimeError(f"workers of the type {self.type} are started by `coderai serve`, not by hand")
        await super().setup()

    async def run(
        self, flow_run: FlowRun, configuration: JobConfiguration, task_status: TaskStatus[Any] | None = None
    ) -> Result:
        """Carry out one flow run; its states, up to the last, are written before this returns."""
        assert self._desk is not None
        if task_status is not None:
            task_status.started(pid_of(self.name, flow_run.id))
        job, live, before = Job(flow_run.id, self._device), self._desk.live, None
        try:
            while flow_run.id in live:  # resumed or retried while a step of its last execution still runs
                before = live[flow_run.id]
                await before.gone.wait()
            live[flow_run.id] = job
            now = flow_run if before is None else await self._after(before, job)
            if now is not None:
                await self._to_its_end(now, job, self._desk)
        finally:
            if live.get(flow_run.id) is job:
                del live[flow_run.id]
            job.gone.set()
            self.freed()
        return Result(identifier=str(flow_run.id), status_code=0)

    async def kill_infrastructure(
        self, infrastructure_pid: str, configuration: JobConfiguration, grace_seconds: int = 30
    ) -> None:
        """End a run that has not begun yet."""
        if self._desk is not None and (job := self._desk.live.get(UUID(infrastructure_pid.rpartition(":")[2]))):
            job.stop("cancelled")

    async def _submit_run(self, flow_run: FlowRun) -> None:
        """See `BaseWorker._submit_run`, which a moment without Prefect would take down with every job of the worker."""
        try:
            await super()._submit_run(flow_run)
        except httpx.HTTPError as error:
            log.info("run %s could not be begun, and is tried again: %s", flow_run.id, error or type(error).__name__)
            self._submitting_flow_run_ids.discard(flow_run.id)
            self._release_limit_slot(flow_run.id)

    async def _after(self, before: Job, job: Job) -> FlowRun | None:
        """The run as its execution `before` has left it; None if that was its end."""
        if before.end == "stopped":
            job.stop("stopped")
        found = await self.client.read_flow_run(job.run)
        return None if found.state is not None and found.state.is_final() else found

    async def _to_its_end(self, flow_run: FlowRun, job: Job, desk: Desk) -> None:
        name = await desk.ours.flow_of(self.client, flow_run.deployment_id)
        chosen = desk.flows.get(name) if name is not None else None
        refusal = _not_ours(flow_run) if chosen is None else _bad_parameters(chosen, flow_run.parameters)
        if refusal is not None:
            log.warning("run %s is refused: %s", flow_run.id, refusal)
            await self.client.set_flow_run_state(flow_run.id, Failed(name="Refused", message=refusal), force=True)
            return
        assert chosen is not None
        task = job.task = asyncio.create_task(_execute(chosen, flow_run, job), name=f"job {flow_run.id}")
        if job.end is not None:
            task.cancel()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            job.stop("stopped")
            raise
        await self._settle(job, task)

    async def _settle(self, job: Job, task: "asyncio.Task[State[Any] | None]") -> None:
        """What the flow could not say itself: it was ended outside of its own code, or Prefect did not hear it.

        A flow engine that is cancelled says that the run has crashed, which is true only where nobody wanted it; one
        that finds it Cancelling when it begins leaves it so.
        """
        if task.cancelled() or (job.end is not None and job.said is None):
            await self.client.set_flow_run_state(job.run, _ended(job.end), force=True)
        elif isinstance(error := task.exception(), Pause):
            if job.said is not None and not job.said.is_crashed():  # it had no step left to be suspended before
                await self._say_again(job.run, job.said)
                return
            log.info("run %s is suspended: it goes on, when it is resumed, with the step that it had come to", job.run)
        elif error is not None:
            log.error("run %s broke off: %s", job.run, error or type(error).__name__, exc_info=_unless_http(error))
            if job.said is not None:
                await self._say_again(job.run, job.said)

    async def _say_again(self, run: UUID, state: State[Any]) -> None:
        """Tell a Prefect that was away how the run went; Prefect may know better, so that nothing is forced."""
        for pause_s in _AGAIN_S:
            await asyncio.sleep(pause_s)
            try:
                await self.client.set_flow_run_state(run, State(type=state.type, message=state.message))
            except httpx.HTTPError as error:
                log.info("the end of run %s could not be told: %s", run, error or type(error).__name__)
            else:
                return
        log.error("the end of run %s was never heard: %s", run, state.message)


class CardWorker(HeadWorker):
    """The worker of a card's pool."""

    type = CARD_TYPE
    variables: ClassVar[dict[str, Any]] = {"device": DEVICE}
    _description = "One card of this machine. Runs CoderAI's own flows; its workers are started by `coderai serve`."


def _nothing() -> None:
    """Nobody waits for it."""


def pid_of(worker: str, run: UUID) -> str:
    """The "infrastructure" of a run: the worker whose process executes it."""
    return f"{worker}:{run}"


async def _execute(chosen: Flow[..., Any], flow_run: FlowRun, job: Job) -> State[Any] | None:
    CURRENT.set(job)
    state: State[Any] | None = await run_flow_async(
        chosen, flow_run=flow_run, parameters=flow_run.parameters, return_type="state"
    )
    return state


def _ended(end: End | None) -> State[None]:
    if end == "cancelled":
        return Cancelled(message="it was cancelled before its work had begun")
    return Crashed(message="the worker process was stopped before its work had begun; retry it")


def _unless_http(error: BaseException) -> BaseException | None:
    """An error whose traceback says something: not one of a server that was away."""
    return None if isinstance(error, httpx.HTTPError) else error


def _not_ours(flow_run: FlowRun) -> str:
    return (
        f"this install runs the deployments of its own prefect.yaml and no others; "
        f"{flow_run.deployment_id or 'a run without a deployment'} is none of them"
    )


def _bad_parameters(chosen: Flow[..., Any], parameters: dict[str, Any]) -> str | None:
    """What is wrong with the parameters, by the flow's own signature; None if nothing is."""
    try:
        chosen.validate_parameters(parameters)
    except (ParameterTypeError, PrefectException, TypeError, ValueError) as error:
        return f"the parameters do not fit the flow {chosen.name}: {error}"
    return None
