"""How far a run is, from what its engines say of the steps that they work on. Pure.

Steps that do the same are counted as one long piece of work: what is done of each is added up, those that have not
begun count as long as the others are on average.
"""

from collections.abc import Sequence
from typing import NamedTuple

from infra.records import RunRecord
from infra.types import Frozen
from workers.wire import Working

WAITING = "waiting"
"""The phase of what no engine works on: it waits for a slot, or for its model."""


class StepProgress(Frozen):
    """One step that an engine works on."""

    step: str
    phase: str
    current: int
    total: int
    it_per_s: float
    elapsed: float


class RunProgress(Frozen):
    """How far a run is: `current` of `total` steps of the model, over all its parts; `total` is 0 where that is not
    known yet. `phase` is that of the part that is least far. `elapsed` is in seconds."""

    phase: str
    current: int
    total: int
    pct: float
    it_per_s: float
    elapsed: float
    steps: tuple[StepProgress, ...] = ()


class Peers(NamedTuple):
    """How many steps of a run do the same, and which of them have their results.

    `usual` is how long one has been lately, in steps of the model, 0 where that is not known; `reached` is how far the
    run was then. Both count while no engine works on it: an engine has done with a step before the run has its result.
    """

    alike: int
    done: frozenset[str] = frozenset()
    usual: float = 0.0
    reached: int = 0


def peers_of(record: RunRecord, usual: float = 0.0, reached: int = 0) -> Peers:
    """The steps of a run that go to engines, as far as it has come."""
    tasks = {step.task for step in record.steps if any(attempt.engine for attempt in step.attempts)}
    alike = [step for step in record.steps if step.task in tasks]
    return Peers(len(alike), frozenset(step.id for step in alike if step.status == "completed"), usual, reached)


def sum_up(working: Sequence[Working], peers: Peers, elapsed_s: float) -> RunProgress:
    """The progress of a run: `working` is what its engines say of it, which may be a moment old: a step that has its
    result by now is not counted a second time."""
    usual = usual_of(working) or peers.usual
    working = [one for one in working if one.step not in peers.done]
    begun = [one.total * one.requests for one in working if one.total]
    total = sum(begun) + round(usual * max(0, peers.alike - len(begun)))
    done = sum(map(_done, working)) + round(usual * len(peers.done))
    current = min(total, done if working else max(done, peers.reached))
    least = min(working, key=lambda one: _done(one) / max(1, one.total * one.requests), default=None)
    return RunProgress(
        phase=WAITING if least is None else least.phase,
        current=current,
        total=total,
        pct=round(100 * current / total, 1) if total else 0.0,
        it_per_s=round(sum(one.per_s for one in working), 3),
        elapsed=round(elapsed_s, 3),
        steps=tuple(_step(one) for one in working),
    )


def usual_of(working: Sequence[Working]) -> float:
    """How long the steps are on average that have begun; 0 if none has."""
    begun = [one.total * one.requests for one in working if one.total]
    return sum(begun) / len(begun) if begun else 0.0


def in_words(progress: RunProgress) -> str:
    """One line of it, for a person."""
    if not progress.total:
        return progress.phase
    pace = f", {progress.it_per_s:.2f} it/s" if progress.it_per_s else ""
    return f"{progress.phase}: {progress.current} of {progress.total} ({progress.pct:.0f} %){pace}"


def _done(working: Working) -> int:
    """The steps of the model that are done of all requests of a step."""
    return working.current + working.before * working.total


def _step(working: Working) -> StepProgress:
    return StepProgress(
        step=working.step or "",
        phase=working.phase,
        current=_done(working),
        total=working.total * working.requests,
        it_per_s=round(working.per_s, 3),
        elapsed=round(working.elapsed_s, 3),
    )
