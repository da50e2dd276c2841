"""Images: some of a request's on one engine, one after the other, and the answer that is made of all."""

import io
from collections.abc import Mapping

from infra.errors import EngineFailed
from infra.types import Json
from tasks.image_events import ImageEvents
from tasks.loras import located
from tasks.made import files_answer
from tasks.refusals import beginning, refusal
from tasks.types import TaskCall, TaskResult
from workers.engine.drawing import FIELD, FRAME, MEDIA_TYPES, PATHS, Drawing
from workers.transport import ANSWER_MOST_BYTES, FilePart
from workers.wire import Mark

_FILES = ("image", "mask")


async def draw_images(call: TaskCall) -> TaskResult:
    """Draw `inputs["drawing"]` once for each of `inputs["seeds"]`: `{images: [{blob, media_type, suffix, seed}, …]}`.

    `inputs["task"]` is `generate`, `edit` or `variation`; the `image` and `mask` of these are `{blob}`. Each image is a
    request of its own to the engine: a batch of several would not give, bit for bit, what each of them gives alone.

    Raises:
        PayloadGone: an image or an adapter of the request is not kept any more.
        DiskFull: there is no room for what is made.
        EngineFailed: the engine died or broke off.
        UpstreamRefused: the request is wrong, in the engine's eyes.
    """
    seeds, asked, files = await _asked(call)
    images: list[Json] = []
    for number, seed in enumerate(seeds):
        wanted = Drawing.model_validate({**asked, "seed": seed})
        data = await _drawn(call, wanted, files, call.part(number, len(seeds)))
        form = wanted.output_format
        images.append({"blob": await call.keep(data), "media_type": MEDIA_TYPES[form], "suffix": form, "seed": seed})
    return TaskResult({"images": images}, units=len(images))


async def stream_images(call: TaskCall) -> TaskResult:
    """The same, each image going to the client as an event when it is drawn, and before it up to
    `inputs["partial_images"]` looks at the unfinished one; `inputs["events"]` is what the events say.

    Raises:
        PayloadGone, EngineFailed, UpstreamRefused: as `draw_images`.
    """
    seeds, asked, files = await _asked(call)
    events, ending = ImageEvents(call), b""
    for number, seed in enumerate(seeds):
        wanted = Drawing.model_validate({**asked, "seed": seed, "previews": call.inputs["partial_images"]})
        data = await _shown(call, wanted, files, call.part(number, len(seeds)), events)
        ending = await events.completed(data, last=number + 1 == len(seeds))
    return TaskResult(b"", ending=ending, units=len(seeds))


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


async def _asked(call: TaskCall) -> tuple[list[Json], dict[str, Json], dict[str, bytes]]:
    """The seeds, what of a `Drawing` is the same for all of them, and the files."""
    seeds, drawing, loras = call.inputs["seeds"], call.inputs["drawing"], call.inputs["loras"]
    assert isinstance(seeds, list)
    assert isinstance(drawing, dict)
    assert isinstance(loras, list)
    asked = drawing | {"loras": list[Json](await located(call, loras))}
    return seeds, asked, {name: await call.fetch(ref) for name in _FILES if (ref := _ref(call.inputs.get(name)))}


async def _drawn(call: TaskCall, wanted: Drawing, files: Mapping[str, bytes], mark: Mark | None) -> bytes:
    """The image's file."""
    engine, path = call.leased(), PATHS[str(call.inputs["task"])]
    status, body = await call.transport.upload(engine, path, _fields(wanted), *_parts(files), mark=mark)
    if status != 200:
        raise refusal(engine.id, path, status, body, ours=False)
    if not body:
        raise EngineFailed(f"{engine.id} answered without an image")
    return body


async def _shown(
    call: TaskCall, wanted: Drawing, files: Mapping[str, bytes], mark: Mark | None, events: ImageEvents
) -> bytes:
    """The image's file, after the looks at it have been sent on."""
    if not wanted.previews:
        return await _drawn(call, wanted, files, mark)
    engine, path = call.leased(), PATHS[str(call.inputs["task"])]
    async with call.transport.form(engine, path, _fields(wanted), *_parts(files), mark=mark) as answer:
        if answer.status != 200:
            raise refusal(engine.id, path, answer.status, await beginning(answer.piece), ours=False)
        held, index = bytearray(), 0
        while piece := await answer.piece():
            held += piece
            while (found := _first(held)) is not None:
                finished, data = found
                if finished:
                    return data
                await events.partial(data, index)
                index += 1
            if len(held) > ANSWER_MOST_BYTES:
                raise EngineFailed(f"{engine.id} answered with more than {ANSWER_MOST_BYTES >> 20} MiB")
    raise EngineFailed(f"{engine.id} answered without an image")


def _first(held: bytearray) -> tuple[bool, bytes] | None:
    """Take the first image off a sequence: whether it is finished, and its file. None while it is not whole."""
    if len(held) < FRAME.size:
        return None
    finished, size_bytes = FRAME.unpack_from(held)
    end = FRAME.size + size_bytes
    if len(held) < end:
        return None
    data = bytes(held[FRAME.size : end])
    del held[:end]
    return finished, data


def _fields(wanted: Drawing) -> list[tuple[str, str]]:
    return [(FIELD, wanted.model_dump_json(exclude_none=True))]


def _parts(files: Mapping[str, bytes]) -> list[FilePart]:
    return [FilePart(name, name, "application/octet-stream", io.BytesIO(data)) for name, data in files.items()]


def _form(images: list[Json]) -> Json:
    """What far images have come as."""
    first = images[0] if images else None
    return first.get("suffix") if isinstance(first, dict) else None


def _ref(file: Json) -> str | None:
    return str(file["blob"]) if isinstance(file, dict) else None
