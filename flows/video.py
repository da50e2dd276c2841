"""Videos: each of a request's is a step of its own, video i with the seed + i, and one step that puts them in order.

    video-1 → video-2 …   (a row for each engine that takes part)   →  collect

Each step makes a whole video on one machine: text encoder, both networks and decoder of the model. In a row a video
begins when the one before is done: a line for a slot is no place to wait for minutes. How many rows there are depends
on the cluster, what a step does does not, so that a retry makes only those that are missing.
"""

from collections.abc import Sequence
from typing import Final

from flows.distribute import Share, Spread, shares
from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json
from workers.sites import Site
from workers.types import Capability, Demand, ModelEntry, ModelFormat

LEAST: Final = 2
"""A video takes minutes: two are worth two engines, unless the model says otherwise."""
FILM: Final = TaskName("film_video")
FILM_FAR: Final = TaskName("film_far")
COLLECT: Final = TaskName("collect_videos")
_OF_EACH: Final = (
    "prompt",
    "negative_prompt",
    "width",
    "height",
    "num_frames",
    "fps",
    "steps",
    "guidance_scale",
    "guidance_scale_2",
)
"""What of a request an engine is told of each video."""


def plan_video(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None = None) -> Plan:
    """All videos in one row. `request`: `{n, seed, prompt, num_frames, fps, loras, response_format}` and what else the
    client has set, checked; `image` is `{blob}`.

    For a far service there is `asked`, which is what it is sent, and the seed is None if the client set none.
    """
    return _plan(request, entry, [Share(None, 0, count_videos(request))])


def spread_video(request: dict[str, Json], entry: ModelEntry, sites: Sequence[Site]) -> Plan | None:
    """The same request in several rows, one an engine; None if it is better not spread."""
    given = shares(count_videos(request), entry, sites, LEAST)
    return _plan(request, entry, given) if given else None


def count_videos(request: dict[str, Json]) -> int:
    """How many videos a checked request wants."""
    count = request["n"]
    assert isinstance(count, int)
    return count


SPREAD_VIDEO: Final = Spread(count_videos, LEAST, spread_video)


def _plan(request: dict[str, Json], entry: ModelEntry, rows: Sequence[Share]) -> Plan:
    steps: list[Step] = []
    task = FILM_FAR if entry.format is ModelFormat.SERVICE else FILM
    for row in rows:
        demand = Demand(entry.name, Capability.VIDEO, home=row.pool)
        for index in range(row.first, row.first + row.items):
            before = {"before": steps[-1].id} if index > row.first else {}
            inputs = _inputs(request, index)
            step = StepId(f"video-{index + 1}")
            steps.append(Step(step, task, inputs, before, demand, items=1, hedge=entry.distribute.hedge))
    answer: dict[str, Json] = {name: request[name] for name in ("response_format", "num_frames", "fps")}
    collect = Step(StepId("collect"), COLLECT, answer, {step.id: step.id for step in steps})
    return Plan("video", entry.name, (*steps, collect))


def _inputs(request: dict[str, Json], index: int) -> dict[str, Json]:
    seed, asked = request["seed"], request.get("asked")
    image: dict[str, Json] = {"image": request["image"]} if request.get("image") is not None else {}
    if isinstance(asked, dict):
        return {"asked": {**asked, "seed": seed + index} if isinstance(seed, int) else asked, **image}
    assert isinstance(seed, int)
    shot: dict[str, Json] = {name: request[name] for name in _OF_EACH if request.get(name) is not None}
    return {"shot": {**shot, "seed": seed + index}, "loras": request["loras"], **image}
