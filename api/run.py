"""Runs one planned request for one client: executes, answers or streams, and tells record, metrics and log."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from api.active import ActiveRun, ActiveRuns
from api.asgi import ClientWatch, EventStream, Exchange
from api.errors import Headers
from api.recording import Recording
from flows.execute import Executor
from flows.plan import Plan
from flows.record import RunRecorder
from infra.clock import Clock, monotonic
from infra.errors import RunCancelled
from infra.tokens import Key
from infra.types import EngineId, RunId
from tasks.types import TaskResult
from workers.fleet import Fleet
from workers.live import Lease
from workers.types import Demand, ModelEntry


@dataclass(frozen=True, slots=True)
class ModelPlacer:
    """Leases for the steps of one run, all of one model."""

    fleet: Fleet
    entry: ModelEntry

    def acquire(self, demand: Demand, tried: frozenset[tuple[EngineId, int]]) -> Coroutine[Any, Any, Lease]:
        """A slot, from the fleet."""
        return self.fleet.acquire(demand, self.entry, tried)


OpenStream = Callable[[Exchange, Callable[[], Headers]], EventStream]


class Delivery(NamedTuple):
    """How a run's answer reaches its client: `keep` is awaited with it before the client has the end of it, and gives
    the answer that the client gets; `turn` makes of a whole one what the client gets in its place. `flows`: the last
    step may send its answer as it makes it, though the request does not ask for a stream."""

    stream: OpenStream = EventStream
    keep: Callable[["Order", TaskResult], Awaitable[TaskResult]] | None = None
    turn: Callable[[TaskResult], Awaitable[TaskResult]] | None = None
    flows: bool = False


AS_IT_COMES = Delivery()


class Order(NamedTuple):
    """One planned request: `request` is the body as the client sent it."""

    run: RunId
    plan: Plan
    entry: ModelEntry
    key: Key
    request: bytes
    stream: bool
    delivery: Delivery = AS_IT_COMES


class Outcome(NamedTuple):
    """How a run went: its recorder, and the error that is still to be answered."""

    recorder: RunRecorder
    unanswered: Exception | None


class Runner:
    """Carries plans out for clients. Whatever happens to a run, it is recorded once."""

    def __init__(
        self,
        executor: Executor,
        fleet: Fleet,
        active: ActiveRuns,
        recording: Recording | None,
        clock: Clock = monotonic,
    ) -> None:
        self._executor = executor
        self._fleet = fleet
        self._active = active
        self._recording = recording
        self._clock = clock

    async def run(self, exchange: Exchange, order: Order) -> Outcome:
        """Answer the client. An error that came before anything was sent is in the outcome, for the caller to answer.

        Raises:
            CancelledError: this process is ending. (A client that has left only ends its run, and so does a
                cancellation by its owner or the operator.)
        """
        recorder, started_s = await self._begin(order), self._clock()
        delivery, channel = order.delivery, None
        if order.stream or delivery.flows:
            channel = delivery.stream(exchange, lambda: run_headers(order.run, recorder.engine))
        answer: TaskResult | None = None
        error: BaseException | None = None
        unanswered: Exception | None = None
        active = self._active.enter(recorder.record)
        try:
            with ClientWatch(exchange.client, channel) as watch:
                try:
                    answer = await self._answer(order, recorder, channel)
                except asyncio.CancelledError as cancelled:
                    error = RunCancelled("the front was stopped while it ran")
                    error = _forgiven(active, watch, cancelled)
                except Exception as failure:  # noqa: BLE001  # kept for the record; the caller answers it
                    error = failure
                if isinstance(error, Exception):
                    unanswered = await _told(channel, error)
            if error is not None and self._recording is not None:
                active.task = None  # it is over: there is nothing to cancel any more
                await self._recording.failing(recorder)
        finally:
            # Before the client has its answer: what was acknowledged is in the spool, whatever happens to us then.
            self._active.leave(active)
            self._record(recorder, error, channel, started_s)
        if answer is not None:
            assert isinstance(answer.value, bytes), "a plan's last step gives the answer's bytes"
            kind: Headers = [(b"content-type", answer.media_type.encode())]
            await exchange.answer(200, answer.value, kind + run_headers(order.run, recorder.engine))
        elif channel is not None and channel.started and not watch.gone:
            await channel.end()
        return Outcome(recorder, unanswered)

    async def _begin(self, order: Order) -> RunRecorder:
        if self._recording is None:
            return RunRecorder(order.run, order.plan, order.key.name)
        payload = await self._recording.payload(order.request)
        return self._recording.recorder(order.run, order.plan, order.key.name, payload)

    async def _answer(self, order: Order, recorder: RunRecorder, channel: EventStream | None) -> TaskResult | None:
        """The answer; None if it went through the channel."""
        result = await self._executor.run(order.plan, ModelPlacer(self._fleet, order.entry), recorder, channel)
        if order.delivery.keep is not None:
            result = await order.delivery.keep(order, result)
        if channel is None or not channel.started:
            return result if order.delivery.turn is None else await order.delivery.turn(result)
        if result.ending:
            await channel.conclude(result.ending)
        return None

    def _record(
        self, recorder: RunRecorder, error: BaseException | None, channel: EventStream | None, started_s: float
    ) -> None:
        first_s = channel.first_write_s - started_s if channel is not None and channel.first_write_s else None
        recorder.close(error, first_s)
        if self._recording is not None:
            self._recording.ended(recorder)


def _forgiven(active: ActiveRun, watch: ClientWatch, cancelled: asyncio.CancelledError) -> BaseException:
    """What ended the run: a cancellation that was meant for it ends it, not the task.

    Raises:
        CancelledError: it was meant for the task.
    """
    task = asyncio.current_task()
    if task is None or not (active.cancelled or watch.gone):
        raise cancelled
    task.uncancel()
    if watch.gone:
        return cancelled
    return RunCancelled("this run was cancelled by its owner or an operator")


async def _told(channel: EventStream | None, error: Exception) -> Exception | None:
    """Tell a client that is in the middle of a stream; else give the error back, to be answered with its status."""
    if channel is None or not channel.started:
        return error
    await channel.tell(error)
    return None


def run_headers(run: RunId, engine: str) -> Headers:
    """`X-Coderai-Run` and, once it is known, `X-Coderai-Engine`."""
    headers: Headers = [(b"x-coderai-run", run.encode())]
    if engine:
        headers.append((b"x-coderai-engine", engine.encode("ascii", "replace")))
    return headers
