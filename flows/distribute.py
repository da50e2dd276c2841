"""How one request is spread over the engines that can serve it: who gets how many of its items, and the steps around
the parts. Pure.

    split  →  part-1 … part-k  →  merge

A part's step has a demand with a home, the pool that it was planned for.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from flows.plan import Plan, Step, StepId, TaskName
from infra.types import EngineId, Json, PoolId
from workers.sites import Site
from workers.types import Capability, Demand, ModelEntry

SPLIT: Final = TaskName("split")
SPLIT_STEP: Final = StepId("split")
_LOAD_FROM: Final = 16
"""Where nothing is known of its speed, a request is worth a load on a further card from this many times `min_items`."""
_LOAD_WORTH_S: Final = 10.0
"""… else, if the engines that hold the model would take so long."""


_ANYWHERE: Final = Site(PoolId(""), EngineId(""), resident=True)
"""For a request whose cut is given though no engine is free."""


class Spread(NamedTuple):
    """What tells one endpoint from another: how many items a checked request has, how many are worth a split unless the
    model says otherwise, and the planner, which gives None where the request is better not split."""

    count: Callable[[dict[str, Json]], int]
    least: int
    plan: Callable[[dict[str, Json], ModelEntry, tuple[Site, ...]], Plan | None]


SitesOf = Callable[[ModelEntry], tuple[Site, ...]]
"""The places where parts of a request for a model could run now, best first."""


class Cut(NamedTuple):
    """What decides how a request is cut: where parts could run, and of one that was begun before, its sizes then, so
    that results which are kept still fit."""

    sites: SitesOf
    sizes: tuple[int, ...] = ()


def in_parts(spread: Spread, request: dict[str, Json], entry: ModelEntry, cut: Cut) -> Plan | None:
    """The plan of a request in parts; None for one that is better not split. Whether it is large enough is asked
    first: looking at the cluster costs more."""
    if not is_worth_splitting(spread.count(request), entry, spread.least):
        return None
    sites = cut.sites(entry)
    if not cut.sizes:
        return spread.plan(request, entry, sites)
    return spread.plan(request, _allowing(entry, len(cut.sizes)), _as_before(cut.sizes, sites))


class Share(NamedTuple):
    """A part: `items` of the request from number `first` on, for a pool; None where any will do."""

    pool: PoolId | None
    first: int
    items: int


def is_worth_splitting(count: int, entry: ModelEntry, least: int) -> bool:
    """Whether a request of `count` items is large enough; `least` is the endpoint's own limit."""
    return entry.distribute.enabled and count >= (entry.distribute.min_items or least)


def shares(count: int, entry: ModelEntry, sites: Sequence[Site], least: int) -> tuple[Share, ...]:
    """The parts of `count` items, as many for each site as it has delivered in its time; empty: not to be split.

    Sites come best first. Those that nothing is known of count as fast as the others are on average.
    """
    if not is_worth_splitting(count, entry, least):
        return ()
    chosen = _chosen(count, entry, sites, least)[: entry.distribute.max_parts]
    if len(chosen) < 2:
        return ()
    sizes = _sizes(count, _speeds(chosen))
    firsts = accumulate(sizes, initial=0)
    parts = [
        Share(site.pool or None, first, size) for site, first, size in zip(chosen, firsts, sizes, strict=False) if size
    ]
    return tuple(parts) if len(parts) > 1 else ()


def part_steps(
    given: Sequence[Share], entry: ModelEntry, capability: Capability, task: TaskName, inputs: Sequence[dict[str, Json]]
) -> tuple[Step, ...]:
    """The split, and a step a part with its own `inputs`."""
    split = Step(SPLIT_STEP, SPLIT, {"sizes": [share.items for share in given]})
    parts = [
        Step(
            StepId(f"part-{number}"),
            task,
            its,
            {"split": split.id},
            Demand(entry.name, capability, home=share.pool),
            items=share.items,
            hedge=entry.distribute.hedge,
        )
        for number, (share, its) in enumerate(zip(given, inputs, strict=True), 1)
    ]
    return split, *parts


def merge_step(task: TaskName, inputs: dict[str, Json], before: Sequence[Step]) -> Step:
    """The step that puts the parts together: it reads the split, and each part under its name."""
    return Step(StepId("merge"), task, inputs, {step.id: step.id for step in before})


def _allowing(entry: ModelEntry, parts: int) -> ModelEntry:
    """The model for so many parts: there may have been more than sites, each large one in several."""
    most = max(parts, entry.distribute.max_parts)
    return entry.model_copy(update={"distribute": entry.distribute.model_copy(update={"max_parts": most})})


def _as_before(sizes: Sequence[int], sites: Sequence[Site]) -> tuple[Site, ...]:
    """The sites for which a request is cut into these sizes: each as fast as its part is large."""
    homes = sites or [_ANYWHERE]
    return tuple(
        homes[place % len(homes)]._replace(resident=True, items_per_s=size) for place, size in enumerate(sizes)
    )


def _chosen(count: int, entry: ModelEntry, sites: Sequence[Site], least: int) -> list[Site]:
    """Who takes part: whoever holds the model; a card where it would have to be loaded only for a large request."""
    resident = [site for site in sites if site.resident]
    cold = [site for site in sites if not site.resident]
    speeds = [site.items_per_s for site in resident]
    if speeds and None not in speeds:
        large = count / sum(_speeds(resident)) >= _LOAD_WORTH_S
    else:
        large = count >= _LOAD_FROM * (entry.distribute.min_items or least)
    return resident + cold if large else resident


def _speeds(sites: Sequence[Site]) -> list[float]:
    known = [site.items_per_s for site in sites if site.items_per_s]
    usual = sum(known) / len(known) if known else 1.0
    return [site.items_per_s or usual for site in sites]


def _sizes(count: int, speeds: Sequence[float]) -> list[int]:
    """`count` items, so that the last one to finish finishes as early as it can."""
    whole = sum(speeds)
    sizes = [int(count * speed / whole) for speed in speeds]
    for _ in range(count - sum(sizes)):
        soonest = min(range(len(sizes)), key=lambda place: (sizes[place] + 1) / speeds[place])
        sizes[soonest] += 1
    return sizes
