"""Images of a far service, which are kept here like those of an engine of ours."""

from collections.abc import AsyncIterator

from infra.errors import EngineFailed
from infra.pictures import measure
from infra.types import Json
from tasks.far_files import FarFile, make_far
from tasks.image_events import ImageEvents
from tasks.types import TaskCall, TaskResult
from workers.engine.drawing import PATHS

_FORM = "b64_json"
_FILES = ("image", "mask")
_PROMPT_CHARS = 32_000
"""The longest prompt that OpenAI's models take; what they make of one is in the run's record, too."""


async def draw_far(call: TaskCall) -> TaskResult:
    """Have `inputs["asked"]` drawn once for each of `inputs["seeds"]`: `{images: [{blob, media_type, suffix, …}, …]}`.

    A seed that is None is not sent. `inputs["task"]` is `generate`, `edit` or `variation`; the `image` and `mask` of
    these are `{blob}`. Each image is a request of its own: not every service makes several at once.

    Raises:
        PayloadGone: a picture of the request is not kept any more.
        DiskFull: there is no room for what is made.
        EngineFailed: the service died, broke off, or did not answer with an image.
        UpstreamRefused: the request is wrong, in the service's eyes.
    """
    images: list[Json] = [await _kept(call, made, of_seed) async for made, of_seed in _made(call)]
    return TaskResult({"images": images}, units=len(images))


async def stream_far(call: TaskCall) -> TaskResult:
    """The same, each image going to the client as an event when it has come; `inputs["events"]` is what the events say.
    There are no looks at unfinished ones.

    Raises:
        PayloadGone, EngineFailed, UpstreamRefused: as `draw_far`.
    """
    seeds = call.inputs["seeds"]
    assert isinstance(seeds, list)
    events, ending, done = ImageEvents(call), b"", 0
    async for made, _ in _made(call):
        done += 1
        ending = await events.completed(made.data, last=done == len(seeds))
    return TaskResult(b"", ending=ending, units=done)


async def _made(call: TaskCall) -> AsyncIterator[tuple[FarFile, dict[str, Json]]]:
    """The images as they come, each with the seed that was asked for, if any was."""
    asked, seeds, path = call.inputs["asked"], call.inputs["seeds"], PATHS[str(call.inputs["task"])]
    assert isinstance(asked, dict)
    assert isinstance(seeds, list)
    given = {name: file for name in _FILES if isinstance(file := call.inputs.get(name), dict)}
    files = {name: await call.fetch(str(file["blob"])) for name, file in given.items()}
    for seed in seeds:
        of_seed: dict[str, Json] = {} if seed is None else {"seed": seed}
        yield await make_far(call, path, asked | of_seed, files, _FORM), of_seed


async def _kept(call: TaskCall, made: FarFile, of_seed: dict[str, Json]) -> dict[str, Json]:
    picture = measure(made.data)
    if picture is None:
        raise EngineFailed(f"{call.leased().id} answered with a file that is no PNG, JPEG or WebP image")
    kind: dict[str, Json] = {"media_type": picture.media_type, "suffix": picture.media_type.partition("/")[2]}
    told: dict[str, Json] = {}
    if isinstance(prompt := made.told.get("revised_prompt"), str):
        told["revised_prompt"] = prompt[:_PROMPT_CHARS]
    return {"blob": await call.keep(made.data), **kind, **of_seed, **made.seed, **told}
