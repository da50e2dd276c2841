"""What the front writes down of its runs: that it began, which runs last, and how each ended."""

import asyncio
import logging
from typing import Literal

import orjson

from api.active import ActiveRuns
from flows.plan import Plan
from flows.record import RunRecorder
from infra.blobs import Blobs, Held
from infra.clock import wall
from infra.errors import DiskFull
from infra.records import Boot, Payload, RunRecord
from infra.spool import Spool
from infra.types import KeyName, RunId, new_run_id

log = logging.getLogger("api.recording")

LOOK_S = 0.5
"""Seconds between looks: a finished run waits for its reader no longer than that."""
INLINE_BYTES = 256 * 1024
"""A larger request goes to a blob of its own, written in a thread where that is possible."""
Payloads = Literal["all", "failed", "none"]


class Recording:
    """Records of this front's runs. `payloads` says whose requests are kept, so that they can be executed again."""

    def __init__(self, spool: Spool, active: ActiveRuns, payloads: Payloads, blobs: Blobs) -> None:
        self.active = active
        self.boot = str(new_run_id())
        self._spool = spool
        self._payloads = payloads
        self._blobs = blobs
        self._held: dict[RunId, Held] = {}
        """Blobs of runs under way that go again if those succeed."""

    def begin(self) -> None:
        """Say that an earlier front's runs are not running any more."""
        self._spool.begin(Boot(self.boot, wall()))

    async def payload(self, request: bytes) -> Payload | None:
        """What is kept of a request until its run has ended. A large one goes to disk at once; where those of failed
        runs alone are kept, when its run lasts or fails."""
        if self._payloads == "none":
            return None
        if len(request) <= INLINE_BYTES:
            return Payload(orjson.Fragment(request.replace(b"\n", b" ")))  # in JSON a newline is nothing but space
        if self._payloads == "failed":
            return Payload(request)
        held = await asyncio.to_thread(self._hold, request)
        return None if held is None else Payload(blob=held.ref)

    def recorder(self, run: RunId, plan: Plan, key: KeyName, payload: Payload | None) -> RunRecorder:
        """A recorder for a run that begins now."""
        recorder = RunRecorder(run, plan, key, payload)
        recorder.record.boot = self.boot
        return recorder

    async def failing(self, recorder: RunRecorder) -> None:
        """The run is about to end with an error: what is slow of `ended`, done beforehand in a thread."""
        request = _large(recorder.record)
        if request is not None:
            self._kept(recorder.record, await asyncio.to_thread(self._hold, request))

    def ended(self, recorder: RunRecorder) -> None:
        """Write down a run that has ended: from now on it survives this process."""
        record = recorder.record
        if record.status == "completed":
            self._succeeded(record)
        elif (request := _large(record)) is not None:
            self._kept(record, self._hold(request))  # this process is ending: nobody waits for it
        self._held.pop(record.id, None)
        self._spool.append(record)
        record.payload = None  # it is not needed in memory any more

    async def keep(self) -> None:
        """Write down which runs last, and let what is written be read, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """One look at the runs under way and the open segment."""
        for run in self.active.lasting():
            run.shown, record = True, run.record
            request = _large(record)
            if request is not None:
                self._kept(record, await asyncio.to_thread(self._hold, request))
            if record.status == "running":
                self._spool.append(record)
        self._spool.roll()

    def _hold(self, request: bytes) -> Held | None:
        try:
            return self._blobs.hold(request)
        except (DiskFull, OSError) as error:
            log.warning("a request of %d bytes is not kept: %s", len(request), error)
            return None

    def _kept(self, record: RunRecord, held: Held | None) -> None:
        """A large request has gone to its blob; its run may have ended meanwhile."""
        if held is not None and record.status == "completed":
            self._blobs.let_go(held)
        elif held is None:
            record.payload = None
        elif record.payload is not None:
            record.payload.request, record.payload.blob = None, held.ref
            self._held[record.id] = held

    def _succeeded(self, record: RunRecord) -> None:
        """Results of steps are for another try; a request may be kept for one, too."""
        if held := self._held.get(record.id):
            self._blobs.let_go(held)
        if self._payloads == "failed":
            record.payload = None
        elif record.payload is not None:
            record.payload.steps = {}


def _large(record: RunRecord) -> bytes | None:
    """A request that is still to go to a blob."""
    request = None if record.payload is None else record.payload.request
    return request if isinstance(request, bytes) else None
