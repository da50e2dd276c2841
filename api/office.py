"""The composition root of the worker process: every part made once, and the order of its life.

Imports Prefect, and with it two seconds of CPU: `api/worker.py` does that once its priority is low.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.context import AsyncClientContext
from prefect.exceptions import PrefectException
from prefect.settings import PREFECT_API_URL

from flows.job_office import OFFICE, Office
from flows.jobs import FLOWS
from infra.batch_rows import Batches
from infra.blobs import Blobs
from infra.database import open_database
from infra.errors import CoderAIError
from infra.file_rows import Files
from infra.file_store import FILES, FileStore
from infra.pulse import keep_pulse
from infra.response_events import ResponseEvents
from infra.response_rows import BackgroundResponses
from infra.run_files import RunFiles
from infra.settings import Settings
from infra.types import PoolId, RunId
from tasks.registry import TASKS
from workers.jobs.crew import Crew, either
from workers.jobs.deployments import Deployments, prefect_yaml
from workers.jobs.events import Subscription
from workers.jobs.front import Front
from workers.jobs.leases import Leases
from workers.jobs.leftovers import FRONT_PID, halted, nobodys, sweep, unfinished
from workers.jobs.pools import keep_in_step
from workers.jobs.suspension import hear_of_suspensions_ourselves, suspend
from workers.jobs.worker import Desk
from workers.transport import Transport

log = logging.getLogger("api.office")

STOP_S: Final = 4.0  # for the last words of jobs when the process is asked to end
LOOK_S: Final = 60.0  # between looks at cards, work pools and deployments of which no event has told
LOOK_AT_JOBS_S: Final = 10.0  # between looks at the jobs under way
_PAUSE_S: Final = 1.0
_RECORDED_S: Final = 5.0
"""Seconds in which the record of a front's run may still come, with the end that it really had."""
_HANDED_OUT_S: Final = 0.5
"""Seconds in which a worker may be taking the run."""


@dataclass(slots=True)
class House:
    """The parts that act on Prefect's events and keep its pools, deployments and runs in step with this install."""

    client: PrefectClient
    front: Front
    deployments: Deployments
    desk: Desk
    crew: Crew
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    cards: tuple[PoolId, ...] = ()
    swept: bool = False

    async def settle(self) -> None:
        """Make everything be as it has to: after each connection, since the Prefect behind it may be another.

        Raises:
            httpx.HTTPError: Prefect does not answer.
        """
        await self.look()
        written = await self.deployments.apply(self.client)
        self.crew.nudge()
        await sweep(self.client, self.crew.pools, self.desk.live, first=False)
        for run in await unfinished(self.client, self.crew.pools, (StateType.CANCELLING,)):
            self.cancelling(run.id, float("inf"))
        await self.look_at_jobs()
        log.info("jobs run on the pools %s; %d deployments written", ", ".join(self.crew.pools), written)

    async def look_at_jobs(self) -> None:
        """Act on the suspended and the cancelled among the jobs under way, of which no event has told.

        Raises:
            httpx.HTTPError: Prefect does not answer.
        """
        for run in await halted(self.client, self.desk.live):
            _heard_of(run)
            if run.state is not None and run.state.is_cancelled():
                self.cancelled(run.id, run.state.timestamp.timestamp())

    async def look(self) -> None:
        """Have a worker for each pool that wants one; the first time, give earlier workers' runs their end before.

        Raises:
            httpx.HTTPError: Prefect does not answer.
            CoderAIError: there is no front to name the cards, and never was.
        """
        async with self.looking:
            try:
                self.cards = await self.front.cards()
            except CoderAIError as error:
                if not self.cards:
                    raise
                log.info("the cards are taken to be those of before: %s", error.message)
            served = await keep_in_step(self.client, self.cards)
            if not self.swept:
                await sweep(self.client, [each.pool for each in served], self.desk.live, first=True)
                self.swept = True
            await self.crew.serve(served)

    async def keep_looking(self) -> None:
        """Look at pools and deployments, for ever: an operator may have deleted one."""
        while True:
            await either(self.changed, LOOK_S)
            self.changed.clear()
            try:
                await self.look()
                await self.deployments.apply(self.client, lost=True)
                self.crew.nudge()
            except (httpx.HTTPError, PrefectException, CoderAIError) as error:
                log.info("work pools and deployments could not be looked at: %s", error or type(error).__name__)

    async def keep_looking_at_jobs(self) -> None:
        """The same for jobs under way, more often: an event that is lost must not let one run on that was halted."""
        while True:
            await asyncio.sleep(LOOK_AT_JOBS_S)
            try:
                await self.look_at_jobs()
            except (httpx.HTTPError, PrefectException) as error:
                log.info("the jobs under way could not be looked at: %s", error or type(error).__name__)

    def waiting(self, pool: UUID) -> None:
        """See `Listener.waiting`."""
        self.crew.nudge(pool)

    def changes(self) -> None:
        """See `Listener.changes`."""
        self.changed.set()

    def cancelling(self, run: UUID, occurred_at: float) -> None:
        """See `Listener.cancelling`."""
        if not self.crew.cancel(run, occurred_at):
            self._begin(self._cancel_elsewhere(run), f"cancel {run}")

    def cancelled(self, run: UUID, occurred_at: float) -> None:
        """See `Listener.cancelled`."""
        self.crew.cancel(run, occurred_at)

    def suspended(self, run: UUID) -> None:
        """See `Listener.suspended`."""
        if run in self.desk.live:
            self._begin(self._suspend(run), f"suspend {run}")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _suspend(self, run: UUID) -> None:
        try:
            _heard_of(await self.client.read_flow_run(run))
        except (httpx.HTTPError, PrefectException) as error:
            log.warning("run %s could not be suspended yet: %s", run, error or type(error).__name__)

    async def _cancel_elsewhere(self, run: UUID) -> None:
        """The front executes it, or nobody does."""
        try:
            if await self.front.cancel(RunId(str(run))):
                return
        except CoderAIError as error:
            log.warning("run %s could not be cancelled in the front: %s", run, error.message)
            return
        try:
            await self._cancel_later(run)
        except (httpx.HTTPError, PrefectException) as error:
            log.warning("run %s could not be given its end: %s", run, error or type(error).__name__)

    async def _cancel_later(self, run: UUID) -> None:
        """End what was handed out in that moment; what nobody executes is over."""
        found = await self.client.read_flow_run(run)
        recorded = (found.infrastructure_pid or "").startswith(FRONT_PID)
        await asyncio.sleep(_RECORDED_S if recorded else _HANDED_OUT_S)
        found = await self.client.read_flow_run(run)
        if found.state is None or found.state.is_final() or self.crew.cancel(run, float("inf")):
            return  # Prefect lets a worker that was just taking the run make it Running in spite of the wish
        if found.state.is_cancelling():
            await self.client.set_flow_run_state(run, nobodys(), force=True)


def _heard_of(run: FlowRun) -> None:
    """Have a run end before its next step, if it is suspended."""
    if suspend(run):
        log.info("run %s is to end before its next step: it is suspended", run.id)


async def work(settings: Settings, token: str, stopped: asyncio.Event) -> None:
    """Execute jobs until `stopped`; those under way then say that they were stopped."""
    _hush()
    hear_of_suspensions_ourselves()
    pulse = asyncio.create_task(keep_pulse(), name="pulse")
    if await _is_heard(_until_prefect_answers(), stopped):
        await _work(settings, token, stopped)
    pulse.cancel()


async def _work(settings: Settings, token: str, stopped: asyncio.Event) -> None:
    async with _house(settings, token) as house:
        keeping = [
            asyncio.create_task(Subscription(house, house.settle).keep(), name="Prefect's events"),
            asyncio.create_task(house.keep_looking(), name="the look at pools and deployments"),
            asyncio.create_task(house.keep_looking_at_jobs(), name="the look at jobs"),
        ]
        stopping = asyncio.create_task(_until(stopped))
        done, _ = await asyncio.wait({stopping, *keeping}, return_when=asyncio.FIRST_COMPLETED)
        for task in keeping:
            task.cancel()
        mute = await house.crew.stop("stopped", STOP_S)
        if mute:
            log.warning("%d jobs could not say that they were stopped; the next start does it", mute)
        for task in done - {stopping}:
            task.result()  # it never returns: this raises what ended it


def _hush() -> None:
    """Prefect's own talk: a run's is for its page, its client's for nobody."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("websockets.client").setLevel(logging.CRITICAL)  # whoever has the connection tells of its end
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).propagate = False


async def _until(stopped: asyncio.Event) -> None:
    await stopped.wait()


async def _is_heard(answer: Coroutine[Any, Any, None], stopped: asyncio.Event) -> bool:
    """Wait for the answer, and no longer than until `stopped`; whether it came."""
    answering, stopping = asyncio.create_task(answer), asyncio.create_task(_until(stopped))
    try:
        await asyncio.wait({answering, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            answering.result()
        return not stopped.is_set()
    finally:
        for task in (answering, stopping):
            task.cancel()
        await asyncio.wait({answering, stopping})


async def _until_prefect_answers() -> None:
    """Its server may be starting as well: a client that finds nobody would be the end of this process."""
    health, told = f"{PREFECT_API_URL.value()}/health", ""
    async with httpx.AsyncClient(trust_env=False) as asking:
        while True:
            try:
                answer = await asking.get(health)
                if answer.is_success:
                    return
                words = f"HTTP {answer.status_code}"
            except httpx.HTTPError as error:
                words = str(error) or type(error).__name__
            if words != told:
                log.info("the flow-run server does not answer yet: %s", words)
            told = words
            await asyncio.sleep(_PAUSE_S)


@contextlib.asynccontextmanager
async def _house(settings: Settings, token: str) -> AsyncIterator[House]:
    """The parts, made; at the end all of them closed."""
    async with contextlib.AsyncExitStack() as stack:
        # One client for every flow run: making one costs more than a job's states do.
        await stack.enter_async_context(AsyncClientContext.get_or_create())
        client = await stack.enter_async_context(get_client())
        front = await stack.enter_async_context(Front(settings.home, token))
        transport = Transport()
        stack.push_async_callback(transport.close)
        leases = Leases(front)
        stack.push_async_callback(leases.close)
        stores = (Blobs(settings.at("jobs")), Blobs(settings.at("payloads")))
        database = await asyncio.to_thread(open_database, settings.sqlalchemy_url)
        stack.callback(database.close)
        batches = Batches(Files(database, FileStore(settings.at(FILES)), settings.files))
        responses = BackgroundResponses(database)
        files, events = RunFiles(settings.home), ResponseEvents(settings.home)
        OFFICE.set(Office(front, leases, transport, TASKS, files, stores, batches, responses, events))
        deployments = Deployments(prefect_yaml())
        desk = Desk(FLOWS, deployments)
        crew = Crew(desk)
        stack.push_async_callback(crew.close)
        yield House(client, front, deployments, desk, crew)
