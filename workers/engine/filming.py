"""What an engine is asked to film: one video. The limits are those of the endpoint, too."""

from typing import Final

from pydantic import Field, field_validator, model_validator

from infra.types import Frozen, Json
from workers.engine.drawing import MAX_GUIDANCE, MAX_LORAS, MAX_SEED, MAX_STEPS

PATH: Final = "/video/generations"
FIELD: Final = "shot"
"""The form's field with a `Shot` in JSON; an image to start from is the file `image`."""
MULTIPLE: Final = 16
"""Every side is a multiple of it: a latent stands for 8 x 8 pixels, and the network takes 2 x 2 of them at once. Some
pipelines want 32, which the engine tells."""
SIDE_RANGE: Final = (16, 2048)
MAX_PIXELS: Final = 1280 * 1280
"""Of one frame: a little over 720p, for which the largest of these models were trained."""
FRAMES_STEP: Final = 4
"""A latent stands for 4 frames, the first one for itself: 4 k + 1 frames."""
MAX_FRAMES: Final = 241
MAX_VOLUME: Final = 1280 * 720 * 241
"""Pixels of all frames: what they take in memory, decoded, is twelve times as many bytes."""
FPS_RANGE: Final = (1.0, 60.0)
DEFAULT_FPS: Final = 16.0
"""Of the films that Wan was trained with."""


class Shot(Frozen):
    """One video. What is None is left to the pipeline; without a size one that starts from an image has its shape.

    `loras` are files on this machine, as `workers.engine.runtimes.loras` takes them. `fps` are frames a second.
    """

    prompt: str
    negative_prompt: str | None = None
    width: int | None = Field(None, ge=SIDE_RANGE[0], le=SIDE_RANGE[1], multiple_of=MULTIPLE)
    height: int | None = Field(None, ge=SIDE_RANGE[0], le=SIDE_RANGE[1], multiple_of=MULTIPLE)
    num_frames: int = Field(81, ge=1, le=MAX_FRAMES)
    fps: float = Field(DEFAULT_FPS, ge=FPS_RANGE[0], le=FPS_RANGE[1])
    seed: int = Field(ge=0, le=MAX_SEED)
    steps: int | None = Field(None, ge=1, le=MAX_STEPS)
    guidance_scale: float | None = Field(None, ge=0, le=MAX_GUIDANCE)
    guidance_scale_2: float | None = Field(None, ge=0, le=MAX_GUIDANCE)
    loras: tuple[dict[str, Json], ...] = Field((), max_length=MAX_LORAS)

    @field_validator("num_frames")
    @classmethod
    def _whole_latents(cls, value: int) -> int:
        if value % FRAMES_STEP != 1:
            raise ValueError(f"a video has {FRAMES_STEP} k + 1 frames, such as 49 or 81")
        return value

    @model_validator(mode="after")
    def _within_memory(self) -> "Shot":
        if (self.width is None) != (self.height is None):
            raise ValueError("give both width and height, or neither")
        pixels = (self.width or 0) * (self.height or 0)
        if pixels > MAX_PIXELS or pixels * self.num_frames > MAX_VOLUME:
            raise ValueError(
                f"{self.num_frames} frames of {self.width}x{self.height} are too much: {MAX_PIXELS} pixels are the "
                f"most of a frame, and {MAX_VOLUME} of all"
            )
        return self
