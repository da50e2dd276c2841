"""Images with a pipeline of diffusers: from a text, from an image, and within a mask. One image a request.

What is drawn is, bit for bit, what a direct call of the pipeline draws with a CPU generator of the same seed, on one
kind of device with one number of threads.
"""

import inspect
import threading
from collections.abc import Mapping
from typing import Any, Final

import diffusers
import torch
from PIL import Image

from infra.errors import InvalidRequest
from workers.engine.drawing import FIELD, MAX_PIXELS, MEDIA_TYPES, PATHS, SEQUENCE_TYPE, SIDE_RANGE, Drawing
from workers.engine.runtimes.loras import PipelineLoras
from workers.engine.runtimes.pictures import colours, encoded, masked, opened
from workers.engine.runtimes.pipelines import Told, card_memory, described, load_pipeline, on_step
from workers.engine.runtimes.previews import Show, in_sequence, looking
from workers.engine.runtimes.protocol import Ask, Handler, Reply
from workers.wire import EngineLaunch

_OPTIONS: Final = {
    "steps": "num_inference_steps",
    "guidance_scale": "guidance_scale",
    "true_cfg_scale": "true_cfg_scale",
    "negative_prompt": "negative_prompt",
    "strength": "strength",
}
"""By our names, diffusers' names of what a request may set and a pipeline may know."""
_KINDS: Final = {"edit": "AutoPipelineForImage2Image", "inpaint": "AutoPipelineForInpainting"}
"""By what they do, diffusers' classes. To name them imports every pipeline there is, so it is left to the load."""


class Images:
    """`/images/generations`, `/images/edits` and `/images/variations`: a form with the field `drawing`. The last two
    have the file `image`, and an edit of which only a part is to be drawn `mask`. The answer is the image's file, or,
    with previews, the sequence of what is to be seen of it."""

    def __init__(self) -> None:
        self._pipes: dict[str, Any] = {}
        """By what they do; all of them share the one set of weights."""
        self._loras: PipelineLoras | None = None
        self._one = threading.Lock()
        """A pipeline keeps what belongs to one run in itself, and in its scheduler."""

    def load(self, launch: EngineLaunch) -> None:
        """See `Runtime.load`."""
        pipe = load_pipeline(diffusers.AutoPipelineForText2Image, launch)
        self._pipes["generate"] = pipe
        self._loras = PipelineLoras(pipe)

    def routes(self) -> Mapping[str, Handler]:
        """See `Runtime.routes`."""
        return {PATHS["generate"]: self._generate, PATHS["edit"]: self._edit, PATHS["variation"]: self._edit}

    def _generate(self, ask: Ask) -> Reply:
        drawing = described(ask, FIELD, Drawing)
        pipe = self._pipes["generate"]
        sizes = {"width": drawing.width, "height": drawing.height}
        _require_multiple(pipe, drawing.width, drawing.height)
        return self._drawn(ask, pipe, drawing, {name: value for name, value in sizes.items() if value is not None})

    def _edit(self, ask: Ask) -> Reply:
        drawing = described(ask, FIELD, Drawing)
        files = {upload.part: upload.data for upload in ask.files}
        if "image" not in files:
            raise InvalidRequest("send the image to start from as the part 'image'", param="image")
        pipe = self._pipe("inpaint" if "mask" in files else "edit")
        image = opened(files["image"], "image")
        size = _size(pipe, drawing, image)
        given: dict[str, Any] = {"image": colours(image, size)}
        if "mask" in files:
            mask = opened(files["mask"], "mask")
            if mask.size != image.size:
                raise InvalidRequest(
                    f"the mask has {mask.width} x {mask.height} pixels and the image {image.width} x {image.height}: "
                    "they must be alike",
                    param="mask",
                )
            given["mask_image"] = masked(mask, size)
        if _knows(pipe, "height"):
            given |= {"width": size[0], "height": size[1]}
        return self._drawn(ask, pipe, drawing, given)

    def _pipe(self, what: str) -> Any:
        """The pipeline that does it, made of the first one's parts when it is first needed.

        Raises:
            InvalidRequest: there is none for this model.
        """
        with self._one:
            if what not in self._pipes:
                try:
                    self._pipes[what] = getattr(diffusers, _KINDS[what]).from_pipe(self._pipes["generate"])
                except ValueError as error:
                    wish = "draw within a mask" if what == "inpaint" else "start from an image"
                    raise InvalidRequest(f"this model cannot {wish}", param="model") from error
                self._pipes[what].set_progress_bar_config(disable=True)
            return self._pipes[what]

    def _drawn(self, ask: Ask, pipe: Any, drawing: Drawing, given: dict[str, Any]) -> Reply:
        given |= _options(pipe, drawing)
        if not drawing.previews:
            return Reply(self._finished(ask, pipe, drawing, given, on_step(ask)), MEDIA_TYPES[drawing.output_format])

        def work(show: Show) -> bytes:
            def look(image: Image.Image) -> None:
                show(encoded(image, drawing.output_format, drawing.quality))

            sides = given.get("width"), given.get("height")
            return self._finished(ask, pipe, drawing, given, looking(on_step(ask), look, sides, drawing.previews))

        return Reply(in_sequence(work), SEQUENCE_TYPE)

    def _finished(self, ask: Ask, pipe: Any, drawing: Drawing, given: dict[str, Any], told: Told) -> bytes:
        """The image's file.

        Raises:
            InvalidRequest: an adapter does not fit.
            EngineFailed: the card's memory does not suffice.
            Abandoned: the client has left.
        """
        with self._one:
            ask.check()
            assert self._loras is not None
            self._loras.apply(drawing.loras)
            ask.progress.tell("preparing", 0, 1)
            with card_memory("image", "a smaller one"):
                images = pipe(
                    prompt=drawing.prompt,
                    generator=torch.Generator("cpu").manual_seed(drawing.seed),
                    callback_on_step_end=told,
                    **given,
                ).images
        ask.progress.tell("encoding", 0, 1)
        return encoded(images[0], drawing.output_format, drawing.quality)


def _options(pipe: Any, drawing: Drawing) -> dict[str, Any]:
    """What the request sets, in the pipeline's words.

    Raises:
        InvalidRequest: this pipeline does not know one of them, or has no step left to do.
    """
    options: dict[str, Any] = {}
    for name, its in _OPTIONS.items():
        value = getattr(drawing, name)
        if value is None:
            continue
        if not _knows(pipe, its):
            raise InvalidRequest(f"{name} is nothing that {type(pipe).__name__} knows: leave it out", param=name)
        options[its] = value
    if "negative_prompt" in options and _knows(pipe, "true_cfg_scale") and options.get("true_cfg_scale", 1.0) <= 1:
        raise InvalidRequest(
            "this model heeds negative_prompt only with a true_cfg_scale above 1", param="true_cfg_scale"
        )
    if _knows(pipe, "strength"):
        usual = inspect.signature(pipe.__call__).parameters
        strength = options.get("strength", usual["strength"].default)
        steps = options.get("num_inference_steps", usual["num_inference_steps"].default)
        if int(steps * strength) < 1:
            raise InvalidRequest(
                f"a strength of {strength} leaves none of {steps} steps to be done: raise one of them", param="strength"
            )
    return options


def _size(pipe: Any, drawing: Drawing, image: Image.Image) -> tuple[int, int]:
    """The size of an edit: the one that is asked for, else the image's own, made smaller to what the pipeline takes.

    Raises:
        InvalidRequest: the pipeline does not take it, or it is too large.
    """
    if drawing.width is not None and drawing.height is not None:
        _require_multiple(pipe, drawing.width, drawing.height)
        return drawing.width, drawing.height
    multiple = _multiple(pipe)
    width, height = (max(multiple, side - side % multiple) for side in image.size)
    least, most = SIDE_RANGE
    if width * height > MAX_PIXELS or not all(least <= side <= most for side in (width, height)):
        raise InvalidRequest(
            f"the image has {image.width} x {image.height} pixels; drawn are sides of {least} to {most} and at most "
            f"{MAX_PIXELS} pixels: give a `size`",
            param="size",
        )
    return width, height


def _require_multiple(pipe: Any, width: int | None, height: int | None) -> None:
    multiple = _multiple(pipe)
    if (width or 0) % multiple or (height or 0) % multiple:
        raise InvalidRequest(
            f"width and height are multiples of {multiple} for this model, not {width}x{height}", param="size"
        )


def _multiple(pipe: Any) -> int:
    """Pixels by which a side of this pipeline's images grows."""
    return int(pipe.image_processor.config.vae_scale_factor)


def _knows(pipe: Any, argument: str) -> bool:
    return argument in inspect.signature(pipe.__call__).parameters
