"""The runs of this front: those under way, which can be cancelled and shown, and the last that ended."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infra.clock import wall
from infra.records import RunRecord
from infra.types import RunId

SHOWN_AFTER_S = 2.0
"""A run that lasts longer is recorded as running meanwhile."""
_RECENT = 1000


@dataclass(slots=True, eq=False)
class ActiveRun:
    """One run under way. `cancelled` is set when its operator or owner asked for its end."""

    record: RunRecord
    task: asyncio.Task[Any] | None
    shown: bool = False
    cancelled: bool = False


class ActiveRuns:
    """Every run between its placement and its answer; `now` gives seconds since the epoch."""

    def __init__(self, now: Callable[[], float] = wall) -> None:
        self._now = now
        self._runs: dict[RunId, ActiveRun] = {}
        self._recent: deque[RunRecord] = deque(maxlen=_RECENT)

    def enter(self, record: RunRecord) -> ActiveRun:
        """The current task begins to answer the run."""
        run = self._runs[record.id] = ActiveRun(record, asyncio.current_task())
        return run

    def leave(self, run: ActiveRun) -> None:
        """It has ended."""
        del self._runs[run.record.id]
        self._recent.append(run.record)

    def cancel(self, run: RunId) -> bool:
        """End a run; its engine's slot is free as soon as the task has seen it. False if it is not under way here."""
        active = self._runs.get(run)
        if active is None or active.task is None or active.cancelled:
            return active is not None
        active.cancelled = True
        active.task.cancel()
        return True

    def find(self, run: RunId) -> RunRecord | None:
        """The record of a run under way, as far as it has come."""
        active = self._runs.get(run)
        return active.record if active else None

    def running(self) -> list[RunRecord]:
        """The records of all runs under way, as far as they have come."""
        return [run.record for run in self._runs.values()]

    def recent(self, run: RunId) -> RunRecord | None:
        """The record of one of the last runs that ended here."""
        return next((record for record in self._recent if record.id == run), None)

    def all(self) -> list[RunRecord]:
        """Runs under way and the last that ended, in the order in which they began."""
        return sorted([*self._recent, *(run.record for run in self._runs.values())], key=lambda run: run.started_at)

    def lasting(self) -> list[ActiveRun]:
        """Runs that have lasted for a while and were not shown yet."""
        latest = self._now() - SHOWN_AFTER_S
        return [run for run in self._runs.values() if not run.shown and run.record.started_at <= latest]
