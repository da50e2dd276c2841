"""What the front writes down of its runs: that it began, which runs last, and how each ended."""

import asyncio
import logging
from typing import Literal

import orjson

from api.active import ActiveRuns
from flows.plan import Plan
from flows.record import RunRecorder
from infra.blobs import Blobs
from infra.clock import wall
from infra.errors import DiskFull
from infra.records import Boot, Payload
from infra.spool import Spool
from infra.types import KeyName, RunId, new_run_id

log = logging.getLogger("api.recording")

LOOK_S = 0.5
"""Seconds between looks: a finished run waits for its reader no longer than that."""
INLINE_BYTES = 256 * 1024
"""A larger request goes to a blob of its own, written in a thread."""
Payloads = Literal["all", "failed", "none"]


class Recording:
    """Records of this front's runs. `payloads` says whose requests are kept, so that they can be executed again."""

    def __init__(self, spool: Spool, active: ActiveRuns, payloads: Payloads, blobs: Blobs) -> None:
        self.active = active
        self.boot = str(new_run_id())
        self._spool = spool
        self._payloads = payloads
        self._blobs = blobs

    def begin(self) -> None:
        """Say that an earlier front's runs are not running any more."""
        self._spool.begin(Boot(self.boot, wall()))

    async def payload(self, request: bytes) -> Payload | None:
        """What is kept of a request until its run has ended; a large one goes to disk at once."""
        if self._payloads == "none":
            return None
        if len(request) <= INLINE_BYTES:
            return Payload(orjson.Fragment(request if b"\n" not in request else orjson.dumps(orjson.loads(request))))
        try:
            return Payload(blob=await asyncio.to_thread(self._blobs.put, request))
        except DiskFull as error:
            log.warning("a request of %d bytes is not kept: %s", len(request), error.message)
            return None

    def recorder(self, run: RunId, plan: Plan, key: KeyName, payload: Payload | None) -> RunRecorder:
        """A recorder for a run that begins now."""
        recorder = RunRecorder(run, plan, key, payload)
        recorder.record.boot = self.boot
        return recorder

    def ended(self, recorder: RunRecorder) -> None:
        """Write down a run that has ended: from now on it survives this process."""
        record = recorder.record
        if self._payloads == "failed" and record.status == "completed":
            record.payload = None
        self._spool.append(record)
        record.payload = None  # it is not needed in memory any more

    async def keep(self) -> None:
        """Write down which runs last, and let what is written be read, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """One look at the runs under way and the open segment."""
        for run in self.active.lasting():
            run.shown = True
            self._spool.append(run.record)
        self._spool.close()
