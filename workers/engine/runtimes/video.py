"""Videos with a Wan pipeline of diffusers: from a text, or from an image and a text. One video a request.

The frames are, bit for bit, what a direct call of the pipeline gives with a CPU generator of the same seed, on one kind
of device with one number of threads.
"""

import math
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from diffusers import WanImageToVideoPipeline, WanPipeline
from PIL import Image

from infra.errors import InvalidRequest, LoadFailed
from infra.ffmpeg_video import encode_mp4
from workers.engine.filming import FIELD, MULTIPLE, PATH, SIDE_RANGE, Shot
from workers.engine.runtimes.loras import PipelineLoras
from workers.engine.runtimes.pictures import colours, opened
from workers.engine.runtimes.pipelines import card_memory, check_index, described, load_pipeline, on_step
from workers.engine.runtimes.protocol import Ask, Handler, Reply
from workers.wire import EngineLaunch

_PIPELINES: Final[dict[str, Any]] = {each.__name__: each for each in (WanPipeline, WanImageToVideoPipeline)}
_DEFAULTS: Final = {"width": 832, "height": 480, "num_inference_steps": 50}
"""Both pipelines' own."""
_USUAL_PIXELS: Final = _DEFAULTS["width"] * _DEFAULTS["height"]
"""Of a frame whose shape is that of the image that it starts from."""
_OPTIONS: Final = {
    "steps": "num_inference_steps",
    "guidance_scale": "guidance_scale",
    "guidance_scale_2": "guidance_scale_2",
    "negative_prompt": "negative_prompt",
}
"""By our names, diffusers' names of what a request may set."""

Frames = npt.NDArray[np.float32]
"""Of one video: frame, row, column, colour; from 0 to 1."""


class Video:
    """`/video/generations`: a form with the field `shot`, and the file `image` to start from. The answer is an MP4."""

    def __init__(self) -> None:
        self._from_text: Any = None
        self._from_image: Any = None
        """The pipelines for either; where there are two, they share one set of weights."""
        self._loras: PipelineLoras | None = None
        self._one = threading.Lock()
        """A pipeline keeps what belongs to one run in itself, and in its scheduler."""

    def load(self, launch: EngineLaunch) -> None:
        """See `Runtime.load`."""
        assert launch.entry.path is not None
        name = str(check_index(launch.entry.path)["_class_name"])
        if name not in _PIPELINES:
            raise LoadFailed(f"{name} makes no videos here: {' and '.join(_PIPELINES)} do")
        pipe = load_pipeline(_PIPELINES[name], launch)
        self._loras = PipelineLoras(pipe)
        if name == WanImageToVideoPipeline.__name__:
            self._from_image = pipe
            return
        self._from_text = pipe
        if pipe.config.expand_timesteps:  # a network that starts from noise, or from noise after a first frame
            self._from_image = WanImageToVideoPipeline(
                **pipe.components, boundary_ratio=pipe.config.boundary_ratio, expand_timesteps=True
            )
            self._from_image.set_progress_bar_config(disable=True)

    def routes(self) -> Mapping[str, Handler]:
        """See `Runtime.routes`."""
        return {PATH: self._generate}

    def _generate(self, ask: Ask) -> Reply:
        shot = described(ask, FIELD, Shot)
        frames = self.film(shot, ask)
        ask.progress.tell("encoding the file", 0, 1)
        shape = frames.shape[2], frames.shape[1]
        return Reply(encode_mp4(_pixels(frames, ask), shape, shot.fps), "video/mp4")

    def film(self, shot: Shot, ask: Ask) -> Frames:
        """The frames of one video.

        Raises:
            InvalidRequest: this pipeline does not take the request as it is.
            EngineFailed: the card's memory does not suffice.
            Abandoned: the client has left.
        """
        image = next((opened(upload.data, "image") for upload in ask.files if upload.part == "image"), None)
        pipe = self._pipe(starts_from_image=image is not None)
        given = _options(pipe, shot) | _size(pipe, shot, image)
        if image is not None:
            given["image"] = colours(image, (given["width"], given["height"]))
        with self._one:
            ask.check()
            assert self._loras is not None
            self._loras.apply(shot.loras)
            steps = given.get("num_inference_steps", _DEFAULTS["num_inference_steps"])
            ask.progress.tell("encoding the prompt", 0, steps)
            with card_memory("video", "fewer or smaller frames"), torch.no_grad():
                videos = pipe(
                    prompt=shot.prompt,
                    num_frames=shot.num_frames,
                    generator=torch.Generator("cpu").manual_seed(shot.seed),
                    callback_on_step_end=on_step(ask),
                    output_type="np",
                    **given,
                ).frames
        frames: Frames = videos[0]
        return frames

    def _pipe(self, *, starts_from_image: bool) -> Any:
        if starts_from_image:
            if self._from_image is None:
                raise InvalidRequest("this model makes videos from a text alone: leave out the image", param="image")
            return self._from_image
        if self._from_text is None:
            raise InvalidRequest("this model makes videos from an image: give one as `image`", param="image")
        return self._from_text


def _options(pipe: Any, shot: Shot) -> dict[str, Any]:
    """What the request sets, in the pipeline's words.

    Raises:
        InvalidRequest: this pipeline does not take it.
    """
    options = {its: value for name, its in _OPTIONS.items() if (value := getattr(shot, name)) is not None}
    if "guidance_scale_2" in options and pipe.config.boundary_ratio is None:
        raise InvalidRequest(
            "this model has one network: leave out guidance_scale_2, which is for the second", param="guidance_scale_2"
        )
    return options


def _size(pipe: Any, shot: Shot, image: Image.Image | None) -> dict[str, int]:
    """The size of the frames: what is asked for, else the image's shape with the usual number of pixels.

    Raises:
        InvalidRequest: this pipeline does not take it.
    """
    multiple = _multiple(pipe)
    if shot.width is not None and shot.height is not None:
        if shot.width % multiple or shot.height % multiple:
            raise InvalidRequest(
                f"width and height are multiples of {multiple} for this model, not {shot.width}x{shot.height}",
                param="size",
            )
        return {"width": shot.width, "height": shot.height}
    width, height = (_DEFAULTS["width"], _DEFAULTS["height"]) if image is None else image.size
    scale = min(1.0, math.sqrt(_USUAL_PIXELS / (width * height)))
    sides = [max(multiple, int(side * scale) // multiple * multiple) for side in (width, height)]
    if max(sides) > SIDE_RANGE[1]:
        raise InvalidRequest(
            f"the image has {width} x {height} pixels, a shape that no video is made in: give a `size`", param="size"
        )
    return dict(zip(("width", "height"), sides, strict=True))


def _multiple(pipe: Any) -> int:
    """Pixels by which a side of this pipeline's frames grows."""
    network = pipe.transformer or pipe.transformer_2
    return max(MULTIPLE, int(pipe.vae_scale_factor_spatial * network.config.patch_size[1]))


def _pixels(frames: Frames, ask: Ask) -> Iterator[bytes]:
    """Each frame as 8-bit numbers."""
    for frame in frames:
        ask.check()
        yield (frame * 255).round().astype(np.uint8).tobytes()
