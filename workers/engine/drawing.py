"""What an engine is asked to draw: one image. The limits are those of the endpoint, too."""

from struct import Struct
from typing import Final, Literal

from pydantic import Field

from infra.types import Frozen, Json

PATHS: Final = {"generate": "/images/generations", "edit": "/images/edits", "variation": "/images/variations"}
FIELD: Final = "drawing"
"""The field of the form that goes there: a `Drawing` in JSON. The files of an edit are `image` and `mask`, that of a
variation is `image`."""
MAX_PREVIEWS: Final = 3
"""OpenAI's own."""
SEQUENCE_TYPE: Final = "application/vnd.coderai.images"
"""The media type of an image and looks at it before it is finished, as they are made: each after a `FRAME`."""
FRAME: Final = Struct(">?I")
"""Whether the image is finished, and the length of its file in bytes."""
MULTIPLE: Final = 8
"""Every side is a multiple of it: a latent stands for 8 x 8 pixels. Some pipelines want 16, which the engine tells."""
SIDE_RANGE: Final = (64, 4096)
MAX_PIXELS: Final = 2048 * 2048
"""Of an image to be made: twice a side of what the largest of these models were trained for, and already gigabytes of
memory in the last step (the decoder's)."""
MAX_INPUT_PIXELS: Final = 16_777_216
"""Of an image that comes with a request, decoded: 4096 x 4096."""
MAX_STEPS: Final = 200
MAX_GUIDANCE: Final = 50.0
MAX_SEED: Final = 2**53 - 1
"""The largest whole number that every JSON reader keeps."""
MAX_LORAS: Final = 8

Form = Literal["png", "jpeg", "webp"]
MEDIA_TYPES: Final[dict[Form, str]] = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp"}


class Drawing(Frozen):
    """One image. What is None is left to the pipeline; without a size an edit has that of its image.

    `loras` are files on this machine, as `workers.engine.runtimes.loras` takes them. `quality` is JPEG's and WebP's.
    With `previews` the answer is a sequence: at most so many looks at the unfinished image come before it.
    """

    prompt: str
    negative_prompt: str | None = None
    width: int | None = Field(None, ge=SIDE_RANGE[0], le=SIDE_RANGE[1], multiple_of=MULTIPLE)
    height: int | None = Field(None, ge=SIDE_RANGE[0], le=SIDE_RANGE[1], multiple_of=MULTIPLE)
    seed: int = Field(ge=0, le=MAX_SEED)
    steps: int | None = Field(None, ge=1, le=MAX_STEPS)
    guidance_scale: float | None = Field(None, ge=0, le=MAX_GUIDANCE)
    true_cfg_scale: float | None = Field(None, ge=0, le=MAX_GUIDANCE)
    strength: float | None = Field(None, gt=0, le=1)
    loras: tuple[dict[str, Json], ...] = Field((), max_length=MAX_LORAS)
    output_format: Form = "png"
    quality: int = Field(100, ge=0, le=100)
    previews: int = Field(0, ge=0, le=MAX_PREVIEWS)
