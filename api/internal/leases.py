"""`/internal/leases`: a slot for a job's step, held for as long as its WebSocket is open.

The worker process says what it needs (`LeaseAsk`), is given a slot or refused one, and says at the end how it went
(`LeaseOver`). A connection that ends, at whatever point, ends the wait or the lease: no slot outlives its holder.
"""

import asyncio
import logging

from pydantic import ValidationError

from api.accounting import JobStep
from api.asgi import Message, Receive, Send
from api.job_steps import HeldStep
from api.services import Services
from infra.clock import monotonic
from infra.errors import CoderAIError, InvalidRequest
from workers.live import Lease
from workers.refused import refusal
from workers.wire import LeaseAsk, LeaseGiven, LeaseOver

log = logging.getLogger("api.internal")


class LeaseRoute:
    """The route as an ASGI application; who comes in was decided before."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, receive: Receive, send: Send) -> None:
        """One step of one job, from its question to its end."""
        await receive()
        try:
            await send({"type": "websocket.accept"})
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return
            try:
                await self._hold(_read(message), receive, send)
            except CoderAIError as error:
                await _say(send, refusal(error).model_dump_json())
            except OSError:
                raise
            except Exception as error:  # the edge: whatever went wrong is answered and logged
                log.exception("a lease failed")
                await _say(send, refusal(error).model_dump_json())
            await send({"type": "websocket.close"})
        except OSError:
            return  # it has left, while it was told something

    async def _hold(self, ask: LeaseAsk, receive: Receive, send: Send) -> None:
        """Take a slot, give it to the worker, and have it back.

        Raises:
            CoderAIError: there is no slot to be had; as `Services.require_open` and `Fleet.acquire`.
        """
        self._services.require_open()
        with self._services.progress.jobs.hold(ask) as step:
            await self._held(ask, step, receive, send)

    async def _held(self, ask: LeaseAsk, step: HeldStep, receive: Receive, send: Send) -> None:
        entry = self._services.shelf.catalogue.get(ask.model)
        ending = asyncio.ensure_future(receive())
        taking = asyncio.ensure_future(self._services.fleet.acquire(ask.demand, entry, frozenset(ask.tried)))
        lease: Lease | None = None
        over: LeaseOver | None = None
        try:
            await asyncio.wait({ending, taking}, return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                lease = taking.result()
                step.engine = lease.engine
                await _say(send, _given(lease).model_dump_json())
                over = _end(await ending)
                step.finished = over is not None and not over.failed
        finally:
            ending.cancel()
            taking.cancel()
            if lease is not None:
                self._end(ask, lease, over)
            else:
                taking.add_done_callback(_let_go)

    def _end(self, ask: LeaseAsk, lease: Lease, over: LeaseOver | None) -> None:
        """Have the slot back; without a last word the step was cancelled."""
        lease.failed = over is not None and over.failed
        lease.release()
        told = over or LeaseOver()
        self._services.accounting.count_step(
            JobStep(
                key=ask.key,
                model=lease.engine.model,
                kind=ask.flow,
                waited_s=lease.waited_s,
                seconds=monotonic() - lease.taken_s,
                again=bool(ask.tried),
                prompt_tokens=told.prompt_tokens,
                completion_tokens=told.completion_tokens,
                units=told.units,
            )
        )


def _let_go(taking: "asyncio.Future[Lease]") -> None:
    """Nobody wants the slot any more, should it have come in the same moment."""
    if not taking.cancelled() and taking.exception() is None:
        taking.result().release()


def _read(message: Message) -> LeaseAsk:
    try:
        return LeaseAsk.model_validate_json(_text(message))
    except ValidationError as error:
        raise InvalidRequest(f"this asks for no lease: {error.errors()[0]['msg']}") from error


def _end(message: Message) -> LeaseOver | None:
    """How the step went; None for one that was cancelled."""
    if message["type"] == "websocket.disconnect":
        return None
    try:
        return LeaseOver.model_validate_json(_text(message))
    except ValidationError as error:
        log.warning("the worker process ended a lease with something else: %s", error.errors()[0]["msg"])
        return None


def _given(lease: Lease) -> LeaseGiven:
    """The slot as the worker sees it. A far service's key goes with the headers alone."""
    engine = lease.engine
    return LeaseGiven(
        engine=engine.id,
        entry=engine.entry.model_copy(update={"api_key": None}),
        pool=engine.pool,
        local=engine.local,
        slots=engine.slots,
        base_url=engine.base_url,
        headers=engine.headers,
        incarnation=lease.incarnation,
        props=engine.props,
        placement=lease.placement,
        waited_s=lease.waited_s,
    )


def _text(message: Message) -> str | bytes:
    text: str | bytes = message.get("text") or message.get("bytes") or b""
    return text


async def _say(send: Send, text: str) -> None:
    await send({"type": "websocket.send", "text": text})
