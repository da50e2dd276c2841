"""The job lane's flows: each carries out the plan of one request, a task run a step, with leases from the front.

The only module with Prefect's `@flow` and `@task`; only the worker process imports it.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, Final
from uuid import UUID

from prefect import Flow, flow, task
from prefect.artifacts import acreate_markdown_artifact, acreate_progress_artifact, aupdate_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed, Crashed, Failed

from flows.batch import BatchRun, answered
from flows.batch_line import LineDoer
from flows.job_executor import JobExecutor, Work
from flows.job_office import OFFICE
from flows.job_progress import JobWatch, watched
from flows.job_response import JobResponse
from flows.job_steps import JobNotes, JobPlacer, fits, kept_sizes
from flows.job_usage import JobUsage
from flows.plan import Plan
from flows.record import RunRecorder
from infra.batch_lines import Results
from infra.batch_rows import Batch
from infra.errors import CoderAIError, RunCancelled
from infra.prefect_child.markdown import describe_run
from infra.records import RunRecord
from infra.requests import resolve
from infra.run_usage import labelled_usage
from infra.types import BatchId, KeyName, RunId
from workers.jobs.labels import keep_usage
from workers.jobs.live import CURRENT
from workers.progress import ProgressLooks

log = logging.getLogger(__name__)

OPERATOR: Final = KeyName("operator")  # a run that was made in Prefect's own pages: no key is known
_STREAMING: Final = frozenset({"stream", "stream_format", "stream_options"})  # nobody is there to read a stream


@flow(name="chat", persist_result=False, result_serializer="json")
async def chat(request: dict[str, Any]) -> State[None]:
    """A chat completion: `request` is OpenAI's body."""
    return await _job("chat", request)


@flow(name="completions", persist_result=False, result_serializer="json")
async def completions(request: dict[str, Any]) -> State[None]:
    """A text completion: `request` is OpenAI's body."""
    return await _job("completions", request)


@flow(name="responses", persist_result=False, result_serializer="json")
async def responses(request: dict[str, Any]) -> State[None]:
    """A response: `request` is OpenAI's body. It is kept as the run's answer, and stored among the responses if it was
    asked for in the background: then the run's tag `response:` names it."""
    return await _job("responses", request)


@flow(name="input_tokens", persist_result=False, result_serializer="json")
async def input_tokens(request: dict[str, Any]) -> State[None]:
    """The tokens of a response's input: `request` is the body of `/v1/responses/input_tokens`."""
    return await _job("input_tokens", request)


@flow(name="compact", persist_result=False, result_serializer="json")
async def compact(request: dict[str, Any]) -> State[None]:
    """A conversation made shorter: `request` is the body of `/v1/responses/compact`."""
    return await _job("compact", request)


@flow(name="embeddings", persist_result=False, result_serializer="json")
async def embeddings(request: dict[str, Any]) -> State[None]:
    """Embeddings: `request` is OpenAI's body."""
    return await _job("embeddings", request)


@flow(name="rerank", persist_result=False, result_serializer="json")
async def rerank(request: dict[str, Any]) -> State[None]:
    """Documents by their relevance: `request` is the body of `/v1/rerank`."""
    return await _job("rerank", request)


@flow(name="transcription", persist_result=False, result_serializer="json")
async def transcription(request: dict[str, Any]) -> State[None]:
    """A recording's text: `request` has the form's fields, and where the recording is kept."""
    return await _job("transcription", request)


@flow(name="speech", persist_result=False, result_serializer="json")
async def speech(request: dict[str, Any]) -> State[None]:
    """A spoken text: `request` is OpenAI's body."""
    return await _job("speech", request)


@flow(name="ocr", persist_result=False, result_serializer="json")
async def ocr(request: dict[str, Any]) -> State[None]:
    """Documents' text: `request` says where each is kept, and how many pages it has."""
    return await _job("ocr", request)


@flow(name="images", persist_result=False, result_serializer="json")
async def images(request: dict[str, Any]) -> State[None]:
    """Images: `request` has what is to be drawn, and where the pictures that came with it are kept."""
    return await _job("images", request)


@flow(name="video", persist_result=False, result_serializer="json")
async def video(request: dict[str, Any]) -> State[None]:
    """Videos: `request` has what is to be filmed, and where the image that came with it is kept."""
    return await _job("video", request)


@flow(name="batch", persist_result=False, result_serializer="json")
async def batch(request: dict[str, Any]) -> State[None]:
    """Many requests as one run; they are no task runs: `request` names the batch."""
    return await _job("batch", request)


_OF_TEXT: Final = (chat, completions, responses, input_tokens, compact, embeddings, rerank)
_OF_MEDIA: Final = (transcription, speech, ocr, images, video)
FLOWS: Final[dict[str, Flow[..., Any]]] = {each.name: each for each in (*_OF_TEXT, *_OF_MEDIA, batch)}
"""Every flow by its name: what a worker may run, and nothing else."""


async def _job(name: str, parameter: dict[str, Any]) -> State[None]:
    """The run's end as a state with a sentence of ours: what a flow raises, Prefect would put in words of its own, and
    write to disk."""
    state: State[None]
    job = CURRENT.get()
    try:
        job.begin()
        await (_carry_out_batch(parameter) if name == "batch" else _respond(name, parameter))
        state = Completed(message="its answer is kept; the run's artifact links to it")
    except asyncio.CancelledError:
        state = _ended()
    except CoderAIError as error:
        state = Failed(message=error.message)
    except Exception as error:
        log.exception("a job of the flow %s met a mistake of ours", name)
        state = Failed(message=f"the worker made a mistake ({type(error).__name__}); the install's log has the details")
    job.said = state
    return state


def _ended() -> State[None]:
    """The state of a run that was ended from outside.

    Raises:
        CancelledError: not by this process.
    """
    current, end = asyncio.current_task(), CURRENT.get().end
    if end is None or current is None:
        raise asyncio.CancelledError
    current.uncancel()
    if end == "cancelled":
        return Cancelled(message="it was cancelled; its engine's slot is free")
    return Crashed(message=STOPPED)


STOPPED: Final = "the worker process was stopped before the run had ended; retry it, and it goes on where it was"


async def _respond(name: str, parameter: dict[str, Any]) -> None:
    """Carry the job out; the stored response that it makes, if it makes one, hears of it.

    Raises:
        CoderAIError: what the run's state will say.
    """
    office, flow_run = OFFICE.get(), _flow_run()
    tags = flow_run.tags if name == "responses" else ()
    async with JobResponse(office.responses, office.events, RunId(str(flow_run.id)), tags) as response:
        await _carry_out(name, parameter, flow_run, response)


async def _carry_out(name: str, parameter: dict[str, Any], flow_run: FlowRun, response: JobResponse) -> None:
    """Plan, do what is not done yet, keep the answer."""
    office = OFFICE.get()
    run, key = RunId(str(flow_run.id)), _owner(flow_run.tags)
    request = await asyncio.to_thread(resolve, parameter, office.stores)
    request = {field: value for field, value in request.items() if field not in _STREAMING}
    kept = await asyncio.to_thread(office.files.steps, run)
    plan = Plan.from_json(await office.planner.plan(name, request, key, kept_sizes(kept)))
    usage = _usage(flow_run)
    notes = JobNotes(RunRecorder(run, plan, key), get_run_logger().info, usage.add)
    placer = JobPlacer(office.slots, run, plan, key, notes.say, CURRENT.get().device, notes.recorder.record)
    executor = JobExecutor(office, _perform, notes, kept if fits(kept, plan) else {})
    failure: BaseException | None = None
    try:
        async with watched(JobWatch(notes, usage, ProgressLooks(office.transport), _Bar().show)):
            result = await executor.run(plan, placer, notes, response.channel)
        assert isinstance(result.value, bytes), "a plan's last step gives the answer's bytes"
        await response.keep(result.value)
        await asyncio.to_thread(office.files.complete, run, result.value, result.media_type)
        if await response.is_gone():
            await asyncio.to_thread(office.files.forget, run)
    except BaseException as error:
        failure = error
        raise
    finally:
        if isinstance(failure, asyncio.CancelledError):
            failure = RunCancelled("it was ended from outside")
        await _show(flow_run, notes.recorder.close(failure, response.first_token_s))
        await usage.tell(now=True)


async def _carry_out_batch(parameter: dict[str, Any]) -> None:
    """Do what is not done yet of a batch, and keep its files.

    Raises:
        CoderAIError: what the run's state will say.
    """
    office, flow_run = OFFICE.get(), _flow_run()
    bar, usage = _Bar(), _usage(flow_run)
    run = RunId(str(flow_run.id))
    found = await asyncio.to_thread(office.batches.get, BatchId(str(parameter.get("batch"))), None)
    do = LineDoer(office, run, found.flow, found.key, CURRENT.get().device, usage.add)
    results = Results(office.files.folder(run) / "batch")

    async def tell(now: Batch) -> None:
        await bar.show(*answered(now))
        await usage.tell()

    work = BatchRun(found, office.batches, results, do.line, tell)
    try:
        await work.carry_out()
    except asyncio.CancelledError:
        if CURRENT.get().end == "cancelled":
            await work.cut_short()
        raise
    finally:
        await usage.tell(now=True)


class _Bar:
    """The bar on the page of the run that is being executed."""

    def __init__(self) -> None:
        self._shown: UUID | None = None

    async def show(self, percent: float, words: str) -> None:
        """Make it, or move it."""
        try:
            if self._shown is None:
                self._shown = await acreate_progress_artifact(percent, description=words)
            else:
                await aupdate_progress_artifact(self._shown, percent, words)
        except Exception as error:  # noqa: BLE001  # the run goes on, whatever its page shows
            log.info("the progress of a run could not be shown: %s", error or type(error).__name__)


async def _show(flow_run: FlowRun, record: RunRecord) -> None:
    """What the run's page has: tags to find it by, where its steps went, the way to its answer."""
    engines = {attempt.engine for step in record.steps for attempt in step.attempts if attempt.engine}
    tags = {*flow_run.tags, f"model:{record.model}", f"key:{record.key}", "lane:job"}
    tags |= {f"engine:{engine}" for engine in engines}
    markdown = describe_run(record)
    if record.status == "completed":
        markdown += f"\n\n[The answer](/admin/runs/{record.id}/answer)"
    try:
        if tags != set(flow_run.tags):
            await get_client().update_flow_run(flow_run.id, tags=sorted(tags))
        await acreate_markdown_artifact(markdown, description="Where each step went, and why")
    except Exception:  # the run has ended as it has, whatever its page shows
        log.exception("the page of run %s lacks its placements", record.id)


def _flow_run() -> FlowRun:
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    return context.flow_run


def _usage(flow_run: FlowRun) -> JobUsage:
    return JobUsage(labelled_usage(flow_run.labels), partial(keep_usage, flow_run.id))


def _owner(tags: Iterable[str]) -> KeyName:
    return KeyName(next((tag.removeprefix("key:") for tag in tags if tag.startswith("key:")), OPERATOR))


@task(name="step", persist_result=False, cache_policy=NO_CACHE)
async def _perform(work: Work, parents: None) -> State[None]:
    """One step. Under the name of `parents` the edges of the run's graph are kept."""
    return await work()
