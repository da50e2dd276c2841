"""The steps of jobs that wait for a slot of this front's or have one: where its jobs are."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from infra.clock import wall
from infra.types import KeyName, RunId
from workers.live import Engine
from workers.types import Capability
from workers.wire import LeaseAsk


@dataclass(slots=True, eq=False)
class HeldStep:
    """One step; `engine` is None while it waits. `finished`: it has its result."""

    ask: LeaseAsk
    engine: Engine | None = None
    finished: bool = False


@dataclass(slots=True, eq=False)
class JobRun:
    """A job that is under way. `began_at` is when this front first heard of it, in seconds since the epoch."""

    run: RunId
    key: KeyName
    capability: Capability
    model: str
    began_at: float
    steps: list[HeldStep] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    """The steps that have their results, as far as this front knows."""

    @property
    def peers(self) -> int:
        """How many steps do the same."""
        return max((step.ask.peers for step in self.steps), default=0)


class JobSteps:
    """All of them, by their runs."""

    def __init__(self) -> None:
        self.runs: dict[RunId, JobRun] = {}

    @contextmanager
    def hold(self, ask: LeaseAsk) -> Iterator[HeldStep]:
        """A step, from its wish for a slot to its end."""
        run = self.runs.get(ask.run)
        if run is None:
            run = JobRun(ask.run, ask.key, ask.demand.capability, ask.model, wall())
            self.runs[ask.run] = run
        step = HeldStep(ask)
        run.steps.append(step)
        run.done.update(ask.done)
        try:
            yield step
        finally:
            run.steps.remove(step)
            if step.finished:
                run.done.add(ask.step)
            if not run.steps:
                del self.runs[ask.run]
