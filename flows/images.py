"""Images: each of a request's is a step of its own, image i with the seed + i, and one step that puts them in order.

    split  →  part-1 … part-n  →  merge

Those of a stream are one step: they come in order, each when it is drawn.

How the images are cut does not depend on the cluster, so that a retry draws only those that are missing. Every engine
that is to take part has its first image planned for it; each further one goes to whoever is free first, which no
forecast of their speeds could better. Only where the model says which engines may take part is all of it planned.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from flows.distribute import Share, Spread, merge_step, part_steps, shares
from flows.plan import Plan, Step, StepId, TaskName
from infra.types import Json, PoolId
from workers.sites import Site
from workers.types import Capability, Demand, ModelEntry, ModelFormat

LEAST: Final = 2
"""An image takes seconds at least: two are worth two engines, unless the model says otherwise."""
DRAW: Final = TaskName("draw_images")
DRAW_FAR: Final = TaskName("draw_far")
COLLECT: Final = TaskName("collect_images")
STREAM: Final = TaskName("stream_images")
STREAM_FAR: Final = TaskName("stream_far")
_OF_EACH: Final = (
    "prompt",
    "negative_prompt",
    "width",
    "height",
    "steps",
    "guidance_scale",
    "true_cfg_scale",
    "strength",
    "output_format",
    "quality",
)
"""What of a request an engine is told of each image."""
_OF_A_STREAM: Final = ("events", "partial_images")


def plan_images(request: dict[str, Json], entry: ModelEntry, _affinity_key: str | None = None) -> Plan:
    """All images on one engine, one after the other. `request`: `{task, n, seed, prompt, loras, response_format,
    output_format, quality}` and what else the client has set, checked; `image` and `mask` are `{blob}`.

    For a far service `{task, n, seed, asked, response_format}`: `asked` is what it is sent, and the seed is None if the
    client set none. Of a stream there is `events`, and for an engine of ours `partial_images`.
    """
    count = count_images(request)
    inputs = _inputs(request, 0, count)
    if "events" in request:
        told: dict[str, Json] = {name: request[name] for name in _OF_A_STREAM if name in request}
        task = STREAM_FAR if entry.format is ModelFormat.SERVICE else STREAM
        demand = Demand(entry.name, Capability.IMAGES)
        return Plan("images", entry.name, (Step(StepId("draw"), task, inputs | told, demand=demand),))
    draw = Step(StepId("draw"), _task(entry), inputs, demand=Demand(entry.name, Capability.IMAGES), items=count)
    merge = Step(StepId("merge"), COLLECT, _answer(request), {"part-1": draw.id})
    return Plan("images", entry.name, (draw, merge))


def spread_images(request: dict[str, Json], entry: ModelEntry, sites: Sequence[Site]) -> Plan:
    """The same request, an image a step; more of them only where the model allows fewer parts."""
    count = count_images(request)
    parts = min(count, entry.distribute.max_parts)
    bounds = [count * number // parts for number in range(parts + 1)]
    sizes = [after - first for first, after in pairwise(bounds)]
    homes = _homes(bounds[:-1], entry, shares(count, entry, sites, LEAST))
    given = [Share(home, first, size) for home, first, size in zip(homes, bounds, sizes, strict=False)]
    inputs = [_inputs(request, share.first, share.items) for share in given]
    steps = part_steps(given, entry, Capability.IMAGES, _task(entry), inputs)
    return Plan("images", entry.name, (*steps, merge_step(COLLECT, _answer(request), steps)))


def count_images(request: dict[str, Json]) -> int:
    """How many images a checked request wants."""
    count = request["n"]
    assert isinstance(count, int)
    return count


SPREAD_IMAGES: Final = Spread(count_images, LEAST, spread_images)


def _homes(firsts: Sequence[int], entry: ModelEntry, given: Sequence[Share]) -> list[PoolId | None]:
    """The pool that each part is planned for, by the number of its first image."""
    of_image = [share.pool for share in given for _ in range(share.items)]
    if entry.distribute.nodes and of_image:
        return [of_image[first] for first in firsts]
    some = list(dict.fromkeys(of_image))[: len(firsts)]
    return [*some, *[None] * (len(firsts) - len(some))]


def _task(entry: ModelEntry) -> TaskName:
    return DRAW_FAR if entry.format is ModelFormat.SERVICE else DRAW


def _inputs(request: dict[str, Json], first: int, count: int) -> dict[str, Json]:
    files = {name: request[name] for name in ("image", "mask") if request.get(name) is not None}
    seeds = _seeds(request["seed"], first, count)
    if "asked" in request:
        return {"task": request["task"], "asked": request["asked"], "seeds": seeds, **files}
    drawing: dict[str, Json] = {name: request[name] for name in _OF_EACH if request.get(name) is not None}
    return {"task": request["task"], "drawing": drawing, "seeds": seeds, "loras": request["loras"], **files}


def _seeds(seed: Json, first: int, count: int) -> list[Json]:
    if seed is None:  # a far service draws its own by lot
        return [None] * count
    assert isinstance(seed, int)
    return [seed + first + number for number in range(count)]


def _answer(request: dict[str, Json]) -> dict[str, Json]:
    return {name: request[name] for name in ("response_format", "output_format") if name in request}
