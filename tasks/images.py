"""Images: some of a request's on one engine, one after the other, and the answer that is made of all."""

import io
from collections.abc import Mapping

from infra.errors import EngineFailed
from infra.types import Json
from tasks.loras import located
from tasks.made import files_answer
from tasks.refusals import refusal
from tasks.types import TaskCall, TaskResult
from workers.engine.drawing import FIELD, MEDIA_TYPES, PATHS, Drawing
from workers.transport import FilePart
from workers.wire import Mark

_FILES = ("image", "mask")


async def draw_images(call: TaskCall) -> TaskResult:
    """Draw `inputs["drawing"]` once for each of `inputs["seeds"]`: `{images: [{blob, media_type, suffix, seed}, …]}`.

    `inputs["task"]` is `generate` or `edit`; an edit's `image` and `mask` are `{blob}`. Each image is a request of its
    own to the engine: a batch of several would not give, bit for bit, what each of them gives alone.

    Raises:
        PayloadGone: an image or an adapter of the request is not kept any more.
        DiskFull: there is no room for what is made.
        EngineFailed: the engine died or broke off.
        UpstreamRefused: the request is wrong, in the engine's eyes.
    """
    seeds, drawing, loras = call.inputs["seeds"], call.inputs["drawing"], call.inputs["loras"]
    assert isinstance(seeds, list)
    assert isinstance(drawing, dict)
    assert isinstance(loras, list)
    asked = drawing | {"loras": list[Json](await located(call, loras))}
    files = {name: await call.fetch(ref) for name in _FILES if (ref := _ref(call.inputs.get(name)))}
    images: list[Json] = []
    for number, seed in enumerate(seeds):
        wanted = Drawing.model_validate({**asked, "seed": seed})
        data = await _drawn(call, wanted, files, call.part(number, len(seeds)))
        form = wanted.output_format
        images.append({"blob": await call.keep(data), "media_type": MEDIA_TYPES[form], "suffix": form, "seed": seed})
    return TaskResult({"images": images}, units=len(images))


async def collect_images(call: TaskCall) -> TaskResult:
    """The answer: the images of `part-1`, `part-2` and so on, in order.

    Raises:
        EngineFailed: a part has no result that can be put there, as after a change of version between two tries.
    """
    images: list[Json] = []
    number = 1
    while f"part-{number}" in call.inputs:
        part = call.inputs[f"part-{number}"]
        drawn = part.get("images") if isinstance(part, dict) else None
        if not isinstance(drawn, list):
            raise EngineFailed(f"part-{number} of the request has no result that can be merged; send it again")
        images += drawn
        number += 1
    form = call.inputs.get("output_format") or _form(images)
    return files_answer(images, str(call.inputs["response_format"]), {"output_format": form})


async def _drawn(call: TaskCall, wanted: Drawing, files: Mapping[str, bytes], mark: Mark | None) -> bytes:
    engine, path = call.leased(), PATHS[str(call.inputs["task"])]
    fields = [(FIELD, wanted.model_dump_json(exclude_none=True))]
    parts = [FilePart(name, name, "application/octet-stream", io.BytesIO(data)) for name, data in files.items()]
    status, body = await call.transport.upload(engine, path, fields, *parts, mark=mark)
    if status != 200:
        raise refusal(engine.id, path, status, body, ours=False)
    if not body:
        raise EngineFailed(f"{engine.id} answered without an image")
    return body


def _form(images: list[Json]) -> Json:
    """What far images have come as."""
    first = images[0] if images else None
    return first.get("suffix") if isinstance(first, dict) else None


def _ref(file: Json) -> str | None:
    return str(file["blob"]) if isinstance(file, dict) else None
