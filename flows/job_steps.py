"""What stands around a step of a job: the slot that it asks the front for, and who hears how it went."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from flows.distribute import SPLIT_STEP
from flows.plan import Plan, Step, StepId
from flows.record import RunRecorder, describe
from infra.clock import wall
from infra.errors import EngineFailed
from infra.records import Attempt, RunRecord
from infra.types import EngineId, Json, KeyName, PoolId, RunId
from tasks.types import TaskResult
from workers.jobs.leases import JobLease
from workers.live import Engine, Lease
from workers.types import Demand
from workers.wire import LeaseAsk, LeaseOver

Say = Callable[[str], None]
"""Writes one line into the run's log."""


_NO_STEP = StepId("")


class SlotGiver(Protocol):
    """Who gives slots: the front."""

    async def acquire(self, ask: LeaseAsk, waits: Say) -> JobLease:
        """A slot; waits for one, and tells why; raises the front's refusal."""
        ...


@dataclass(frozen=True, slots=True)
class JobPlacer:
    """Leases for one run; `of` gives the placer of a step. `device` is the card that the run must stay on, if any;
    `record` tells which of its steps are done."""

    slots: SlotGiver
    run: RunId
    plan: Plan
    key: KeyName
    say: Say
    device: PoolId | None = None
    record: RunRecord | None = None
    step: StepId = _NO_STEP

    def of(self, step: StepId) -> "JobPlacer":
        """The placer of a step."""
        return replace(self, step=step)

    async def acquire(self, demand: Demand, tried: frozenset[tuple[EngineId, int]]) -> Lease:
        """See `Placer.acquire`."""
        peers = self._peers()
        ask = LeaseAsk(
            run=self.run,
            step=self.step,
            flow=self.plan.flow,
            key=self.key,
            model=self.plan.model,
            demand=replace(demand, pin=demand.pin or self.device, patient=True),
            tried=tuple(sorted(tried)),
            peers=max(1, len(peers)),
            done=self._done(peers),
        )
        return await self.slots.acquire(ask, self._waits)

    def _peers(self) -> set[StepId]:
        """The steps that do the same."""
        tasks = {step.task for step in self.plan.steps if step.id == self.step}
        return {step.id for step in self.plan.steps if step.task in tasks}

    def _done(self, peers: set[StepId]) -> tuple[str, ...]:
        steps = self.record.steps if self.record is not None else []
        return tuple(step.id for step in steps if step.id in peers and step.status == "completed")

    def _waits(self, why: str) -> None:
        self.say(f"step {self.step}: waits: {why}")


@dataclass(frozen=True, slots=True)
class JobNotes:
    """Hears what happens to a run: tells its log, its record, each lease how its step went, and `used` each result."""

    recorder: RunRecorder
    say: Say
    used: Callable[[TaskResult], None]
    _leases: dict[StepId, JobLease] = field(default_factory=dict)

    @property
    def run(self) -> RunId:
        """The run's id."""
        return self.recorder.run

    def kept(self, step: Step) -> None:
        """The step is not run: its result is there."""
        self.say(f"step {step.id}: its result is kept from an earlier try; it is not run again")
        now = wall()
        record = next(each for each in self.recorder.record.steps if each.id == step.id)
        record.attempts.append(Attempt(None, None, 0, "kept from an earlier try", [], now, now))
        record.status = "completed"

    def placed(self, step: Step, lease: Lease | None) -> None:
        """A try begins."""
        self.recorder.placed(step, lease)
        if lease is None:
            self.say(f"step {step.id}: done by the worker process itself")
            return
        assert isinstance(lease, JobLease)
        self._leases[step.id] = lease
        placement = lease.placement
        passed = "".join(f"; passed over {over.candidate}: {over.reason}" for over in placement.passed_over)
        waited = f" after {lease.waited_s:.1f} s" if lease.waited_s >= 1 else ""
        self.say(f"step {step.id}: on {lease.engine.id}{waited}: {placement.reason}{passed}")

    def finished(self, step: Step, result: TaskResult, lease: Lease | None = None) -> None:
        """The step has its result."""
        self.recorder.finished(step, result, lease)
        self.used(result)
        usage = result.usage
        if step.id in self._leases:
            tokens = usage._asdict() if usage is not None else {}
            self._leases[step.id].over = LeaseOver(**tokens, units=result.units)

    def engines(self) -> list[Engine]:
        """Where steps are at work now."""
        return [lease.engine for lease in self._leases.values() if not lease.released]

    def failed(self, step: Step, error: BaseException, lease: Lease | None = None, *, final: bool) -> None:
        """A try failed, or was cancelled: then its lease ends without a word."""
        self.recorder.failed(step, error, lease, final=final)
        if step.id in self._leases and not isinstance(error, asyncio.CancelledError):
            self._leases[step.id].over = LeaseOver(failed=isinstance(error, EngineFailed))
        self.say(f"step {step.id}: {'failed' if final else 'failed, is tried elsewhere'}: {describe(error)}")


def kept_sizes(kept: Mapping[str, Json]) -> tuple[int, ...] | None:
    """How the request was cut when these results of its steps were made: none if it was not; None if there are none."""
    if not kept:
        return None
    split = kept.get(SPLIT_STEP, [])
    ranges = split.get("ranges") if isinstance(split, dict) else split
    known = ranges if isinstance(ranges, list) else []
    return tuple(each[1] for each in known if isinstance(each, list) and isinstance(each[1], int))


def fits(kept: Mapping[str, Json], plan: Plan) -> bool:
    """Whether the results belong to this plan: a part of another cut has other items under the same name."""
    sizes = next((step.inputs["sizes"] for step in plan.steps if step.id == SPLIT_STEP), [])
    return sizes == list(kept_sizes(kept) or ())
