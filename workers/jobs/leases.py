"""Leases for the steps of jobs: the front gives them over a WebSocket each, which holds the slot while it is open."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from pydantic import TypeAdapter, ValidationError

from infra.errors import NoCapacity, NoRoom, Nowhere
from workers.bounds import POOL_PAUSED
from workers.jobs.front import Front, FrontGone
from workers.live import Engine, Lease
from workers.refused import rebuilt
from workers.wire import LeaseAsk, LeaseGiven, LeaseOver, LeaseRefused

log = logging.getLogger(__name__)

PATH = "/internal/leases"
NOWHERE_S = 600.0
"""Seconds that a step waits while no card has the room for it, which may change or not; a full line and a pause do."""
LASTING_S = 10.0
"""Seconds that a step whose engine has failed it waits though no place will come by itself: the front may not have
heard of the failure yet, or start the engine anew. Another step is told at once."""
GONE_S = 30.0
"""Seconds that it waits while no front answers."""
_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 2.0
"""A resumed pool, or a raised limit, is to be felt within seconds."""
_CLOSE_S = 2.0
_OVER = frozenset(
    {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
)

_ANSWER: TypeAdapter[LeaseGiven | LeaseRefused] = TypeAdapter(LeaseGiven | LeaseRefused)


@dataclass(slots=True, eq=False)
class JobLease(Lease):
    """A lease over the wire. `over` is what the front is told at its end; without it the step was cancelled."""

    over: LeaseOver | None = None


@dataclass(slots=True)
class _Patience:
    """How long a step still waits. What ends by itself is waited for as long as it takes: nobody would ask again."""

    nowhere_s: float
    gone_s: float
    lasting_s: float = 0.0
    _most_s: float = math.inf
    _since_s: float = 0.0

    def pause_s(self, error: NoCapacity, now_s: float) -> float | None:
        """Seconds until the next try; None when it is over. `now_s` is the loop's clock."""
        gone = isinstance(error, FrontGone)
        nowhere = isinstance(error, NoRoom) and error.code != POOL_PAUSED
        most_s = self.gone_s if gone else self.nowhere_s if nowhere else math.inf
        if isinstance(error, Nowhere):
            most_s = self.lasting_s
        if most_s != self._most_s:
            self._most_s, self._since_s = most_s, now_s
        pause_s = _PAUSE_S if gone else min(_LONGEST_PAUSE_S, error.retry_after_s or _PAUSE_S)
        return None if now_s + pause_s - self._since_s > most_s else pause_s


@dataclass(slots=True)
class Leases:
    """Asks the front for slots."""

    front: Front
    nowhere_s: float = NOWHERE_S
    gone_s: float = GONE_S
    lasting_s: float = LASTING_S
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    async def acquire(self, ask: LeaseAsk, waits: Callable[[str], None]) -> JobLease:
        """A slot. Where the front has none now, or has gone, it is asked again; `waits` hears each new reason.

        Raises:
            CoderAIError: the front's refusal, or its last one.
        """
        loop = asyncio.get_running_loop()
        started_s, told = loop.time(), ""
        patience = _Patience(self.nowhere_s, self.gone_s, self.lasting_s if ask.tried else 0.0)
        if ask.tried:
            await self.close()  # until the front knows of it, the engine that has failed is one that is well
        while True:
            try:
                return await self._ask(ask, started_s)
            except NoCapacity as error:
                pause_s = patience.pause_s(error, loop.time())
                if pause_s is None:
                    raise
                if error.message != told:
                    log.info("run %s, step %s waits: %s", ask.run, ask.step, error.message)
                    waits(error.message)
                told = error.message
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Wait until the front has been told of every end."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_S)

    async def _ask(self, ask: LeaseAsk, started_s: float) -> JobLease:
        socket = await self.front.connect(PATH)
        given: LeaseGiven | None = None
        try:
            answer = await _answer_to(socket, ask)
            if isinstance(answer, LeaseRefused):
                raise rebuilt(answer)
            given = answer
        finally:
            if given is None:
                self._end(socket, None)
        return self._lease(socket, given, started_s)

    def _lease(self, socket: aiohttp.ClientWebSocketResponse, given: LeaseGiven, started_s: float) -> JobLease:
        now_s = asyncio.get_running_loop().time()
        reading = asyncio.create_task(_listen(socket))
        engine = Engine(
            given.engine,
            given.entry,
            given.pool,
            given.local,
            given.slots,
            base_url=given.base_url,
            headers=given.headers,
            state="ready",
            incarnation=given.incarnation,
            props=given.props,
        )

        def give_back(lease: Lease) -> None:
            assert isinstance(lease, JobLease)
            self._end(socket, lease.over, reading)

        return JobLease(engine, given.incarnation, 0, given.placement, now_s - started_s, now_s, give_back)

    def _end(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        over: LeaseOver | None,
        reading: asyncio.Task[None] | None = None,
    ) -> None:
        """Give the slot back from a place that cannot wait: whoever is cancelled must not."""
        task = asyncio.create_task(_close(socket, over, reading))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _answer_to(socket: aiohttp.ClientWebSocketResponse, ask: LeaseAsk) -> LeaseGiven | LeaseRefused:
    try:
        await socket.send_str(ask.model_dump_json())
        message = await socket.receive()
    except (aiohttp.ClientError, ConnectionError) as error:
        raise FrontGone(f"the front broke off while a slot was asked for: {error or type(error).__name__}") from error
    if message.type is not aiohttp.WSMsgType.TEXT:
        raise FrontGone("the front closed the connection while a slot was asked for")
    try:
        return _ANSWER.validate_json(message.data)
    except ValidationError as error:
        raise FrontGone(f"the front's answer about a slot cannot be read: {error.errors()[0]['msg']}") from error


async def _listen(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Answer the front's pings for as long as the step runs: aiohttp does so only while somebody reads.

    A front that has gone has forgotten the lease; the step goes on, for its engine has not.
    """
    while (await socket.receive()).type not in _OVER:
        continue


async def _close(
    socket: aiohttp.ClientWebSocketResponse, over: LeaseOver | None, reading: asyncio.Task[None] | None
) -> None:
    """Say how it went, and close. A front that has gone has forgotten the lease, too."""
    if reading is not None:
        reading.cancel()
        await asyncio.wait([reading])
    try:
        if over is not None:
            await socket.send_str(over.model_dump_json())
    except (aiohttp.ClientError, ConnectionError) as error:
        log.debug("the front did not hear of a lease's end: %s", error)
    finally:
        await socket.close()
