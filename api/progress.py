"""The generations under way on this front, of both lanes, with what their engines say of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from api.active import ActiveRuns
from api.job_steps import JobRun, JobSteps
from flows.progress import Peers, RunProgress, peers_of, sum_up, usual_of
from infra.clock import wall
from infra.records import RunRecord
from infra.tokens import Key
from infra.types import EngineId, ModelName, RunId
from workers.catalogue import Catalogue
from workers.live import Engine
from workers.progress import ProgressLooks, tells
from workers.types import Capability
from workers.wire import Working


@dataclass(frozen=True, slots=True)
class UnderWay:
    """One run: what it is, and where its steps are."""

    run: RunId
    key: str
    model: str
    began_at: float
    engines: tuple[Engine, ...]
    peers: Peers


class ProgressDesk:
    """Knows which runs are under way, and asks how far they are."""

    def __init__(self, active: ActiveRuns, looks: ProgressLooks, engines: dict[EngineId, Engine]) -> None:
        self.jobs = JobSteps()
        self._active = active
        self._looks = looks
        self._engines = engines
        self._last: dict[RunId, tuple[float, int]] = {}
        """Of each run that was looked at: how long its steps are, and how far it was."""

    async def of_kind(
        self, key: Key, kinds: frozenset[Capability], catalogue: Catalogue
    ) -> list[tuple[UnderWay, RunProgress]]:
        """The runs of these kinds that the key may see, in the order in which they began."""
        runs = [self._interactive(record) for record in self._records(kinds, catalogue)]
        runs += [self._job(job) for job in self.jobs.runs.values() if job.capability in kinds]
        seen = [run for run in runs if key.scope == "admin" or run.key == key.name]
        return await self._looked(sorted(seen, key=lambda run: run.began_at))

    async def of_run(self, run: RunId) -> RunProgress | None:
        """How far a run is; None for one that is not under way here, or whose engines do not tell."""
        record, job = self._active.find(run), self.jobs.runs.get(run)
        found = self._interactive(record) if record is not None else self._job(job) if job is not None else None
        if found is None or not found.engines:
            return None
        ((_run, progress),) = await self._looked([found])
        return progress if progress.steps or progress.total else None

    async def _looked(self, runs: list[UnderWay]) -> list[tuple[UnderWay, RunProgress]]:
        working = await self._looks.at(engine for run in runs for engine in run.engines)
        return [(run, self._summed(run, working)) for run in runs]

    def _summed(self, run: UnderWay, working: Iterable[Working]) -> RunProgress:
        own = [one for one in working if one.run == run.run]
        summed = sum_up(own, run.peers, wall() - run.began_at)
        if usual := usual_of(own):
            last = {known: was for known, was in self._last.items() if self._lasts(known)}
            self._last = last | {run.run: (usual, summed.current)}
        return summed

    def _lasts(self, run: RunId) -> bool:
        return run in self.jobs.runs or self._active.find(run) is not None

    def _records(self, kinds: frozenset[Capability], catalogue: Catalogue) -> Iterable[RunRecord]:
        for record in self._active.running():
            entry = catalogue.find(ModelName(record.model))
            if entry is not None and not kinds.isdisjoint(entry.capabilities):
                yield record

    def _interactive(self, record: RunRecord) -> UnderWay:
        tried = (attempt for step in record.steps for attempt in step.attempts if not attempt.ended_at)
        engines = {attempt.engine: self._engines.get(attempt.engine) for attempt in tried if attempt.engine}
        return UnderWay(
            record.id,
            record.key,
            record.model,
            record.started_at,
            tuple(engine for engine in engines.values() if engine is not None and tells(engine)),
            peers_of(record, *self._last.get(record.id, (0.0, 0))),
        )

    def _job(self, job: JobRun) -> UnderWay:
        engines = {step.engine.id: step.engine for step in job.steps if step.engine is not None}
        return UnderWay(
            job.run,
            job.key,
            job.model,
            job.began_at,
            tuple(engine for engine in engines.values() if tells(engine)),
            Peers(job.peers, frozenset(job.done), *self._last.get(job.run, (0.0, 0))),
        )
