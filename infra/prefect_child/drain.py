"""The drainer: from the spool's closed segments to flow runs, in batches, each deleted only when it is committed.

Its only memory is the spool itself. Whatever kills it, the next one reads again what was not deleted, and the writer
does not mind what it has already. Nothing here is on a request's path.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from infra.clock import Clock, monotonic
from infra.errors import DiskFull, InvalidRequest
from infra.prefect_child.batch import NotReady, Record, Recorded, RowsRefused, SchemaUnknown
from infra.prefect_child.payloads import PayloadKeeper
from infra.prefect_child.segments import Chunk, Line, Segments
from infra.prefect_child.set_aside import Refused, SetAside
from infra.recorder_status import RecorderStatus, State, StatusFile
from infra.records import Boot, read_line

log = logging.getLogger("infra.prefect_child.drain")

POLL_S: Final = 0.3
"""Seconds between looks while nothing waits; a look costs one listing of the directory."""
FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 5.0
PATIENCE: Final = 6
"""Failures of an unknown kind in a row, some 13 s, after which single lines are suspected."""

_NOT_A_LINE_S_FAULT: Final = (NotReady, DiskFull, OSError, TimeoutError)


class _Item(NamedTuple):
    line: Line
    entry: Boot | Recorded


class _Prepared(NamedTuple):
    """A chunk, read: what the writer gets, and what it is not even asked about."""

    chunk: Chunk
    items: list[_Item]
    refused: list[Refused]


class Drainer:
    """Drains the spool in `directory` with `record`, for ever. One at a time a spool. The status is `starting` until
    the first turn."""

    def __init__(
        self,
        directory: Path,
        record: Record,
        payloads: PayloadKeeper,
        status: StatusFile,
        clock: Clock = monotonic,
    ) -> None:
        self._record = record
        self._payloads = payloads
        self._status_file = status
        self._segments = Segments(directory, clock=clock)
        self._set_aside = SetAside(directory)
        self._status = RecorderStatus(state="starting")
        self._failures = 0
        self._say("starting", now=True)

    async def run_forever(self) -> None:
        """Drain until cancelled. Every failure is logged once, shown in the status, and tried again."""
        try:
            while True:
                pause_s = await self.turn()
                await asyncio.sleep(pause_s)
        finally:
            self._say("off", "the Prefect child is stopping", now=True)

    async def turn(self) -> float:
        """Drain one batch, if there is one; returns the seconds to wait until the next turn."""
        if not self._segments.waiting():
            self._say("recording")
            return POLL_S
        try:
            await self._drain()
        except SchemaUnknown as error:
            return self._failed("mismatch", error.message)
        except _NOT_A_LINE_S_FAULT as error:
            return self._failed("waiting", str(error))
        except Exception as error:
            if self._failures == 0:
                log.exception("a batch could not be recorded")
            return self._failed("waiting", f"{type(error).__name__}; see the log")
        if self._failures:
            log.warning("recording again")
        self._failures = 0
        self._say("recording")
        return 0.0

    async def _drain(self) -> None:
        prepared = await asyncio.to_thread(self._prepare)
        refused = prepared.refused + await self._write(prepared.items)
        await asyncio.to_thread(self._finish, prepared.chunk, refused)
        written = sum(isinstance(item.entry, Recorded) for item in prepared.items)
        self._status = self._status.model_copy(
            update={
                "recorded": self._status.recorded + written - (len(refused) - len(prepared.refused)),
                "set_aside": self._status.set_aside + len(refused),
            }
        )

    async def _write(self, items: Sequence[_Item]) -> list[Refused]:
        """Write the items; returns those that cannot be. An unknown error is held against a line only after a while,
        and only where its neighbours could be written."""
        failed = await _halved(self._record, items, suspicious=self._failures >= PATIENCE)
        if failed and len(failed) == len(items):
            for _, error in failed:
                if not isinstance(error, RowsRefused):
                    raise error
        return [_refusal(item, error) for item, error in failed]

    def _prepare(self) -> _Prepared:
        """Read a chunk and keep its payloads; in a thread, for it reads and writes files."""
        prepared = _Prepared(self._segments.read(), [], [])
        for line in prepared.chunk.lines:
            try:
                prepared.items.append(_Item(line, self._entry(line)))
            except InvalidRequest as error:
                prepared.refused.append(Refused(line, error.message))
            except _NOT_A_LINE_S_FAULT:
                raise
            except Exception as error:
                if self._failures < PATIENCE:
                    raise
                prepared.refused.append(Refused(line, type(error).__name__))
        return prepared

    def _finish(self, chunk: Chunk, refused: Sequence[Refused]) -> None:
        self._set_aside.add(refused)
        self._segments.commit(chunk)

    def _entry(self, line: Line) -> Boot | Recorded:
        if line.oversized:
            raise InvalidRequest("a line that is too long for a record")
        readable = True
        try:
            record = read_line(line.text)
        except InvalidRequest as error:
            record, readable = read_line(_without_payload(line.text, error)), False
        return record if isinstance(record, Boot) else self._payloads.keep(record, readable=readable)

    def _failed(self, state: State, reason: str) -> float:
        if reason != self._status.reason:
            log.warning("runs cannot be recorded now and wait in the spool: %s", reason)
        self._failures += 1
        self._say(state, reason)
        return min(FIRST_PAUSE_S * (1 << min(self._failures - 1, 10)), LONGEST_PAUSE_S)

    def _say(self, state: State, reason: str = "", *, now: bool = False) -> None:
        self._status = self._status.model_copy(
            update={
                "state": state,
                "reason": reason,
                "waiting_segments": self._segments.waiting(),
                "oldest_waiting_s": self._segments.oldest_waiting_s(),
            }
        )
        self._status_file.say(self._status, now=now)


async def _halved(record: Record, items: Sequence[_Item], suspicious: bool) -> list[tuple[_Item, Exception]]:
    """Write all, halving what is refused until the lines at fault stand alone; returns them.

    When `suspicious`, an error that is no refusal is taken for one, too.
    """
    if not items:
        return []
    try:
        await record([item.entry for item in items])
    except _NOT_A_LINE_S_FAULT:
        raise
    except Exception as error:
        if not (suspicious or isinstance(error, RowsRefused)):
            raise
        if len(items) == 1:
            return [(items[0], error)]
    else:
        return []
    middle = len(items) // 2
    first = await _halved(record, items[:middle], suspicious)
    return first + await _halved(record, items[middle:], suspicious)


def _refusal(item: _Item, error: Exception) -> Refused:
    return Refused(item.line, error.message if isinstance(error, RowsRefused) else type(error).__name__)


def _without_payload(text: bytes, error: InvalidRequest) -> bytes:
    """The line without its payload: a request may be nested more deeply than a record can be read, and the run is to
    be seen nevertheless.

    Raises:
        InvalidRequest: `error`; the payload is not what is wrong with it.
    """
    try:
        line = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise error from None
    if not isinstance(line, dict) or line.pop("payload", None) is None:
        raise error
    return orjson.dumps(line)
