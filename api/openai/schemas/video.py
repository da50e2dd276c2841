"""`POST /v1/video/generations`: what a client may send, and the request that it becomes."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from api.openai.schemas.making import (
    Data,
    GivenImage,
    Guidance,
    KeptFile,
    KeptLora,
    LoraChoice,
    NegativePrompt,
    Prompt,
    check_seeds,
    from_form,
)
from api.openai.schemas.shared import STRICT, Body, ModelField, User, check_known, validate
from infra.errors import InvalidRequest
from infra.wording import sentence
from workers.engine.drawing import MAX_LORAS, MAX_SEED, MAX_STEPS
from workers.engine.filming import DEFAULT_FPS, FPS_RANGE, MAX_FRAMES, SIDE_RANGE, Shot

MAX_VIDEOS: Final = 16
DEFAULT_FRAMES: Final = 81
"""Five seconds of Wan's."""

_Side = Annotated[int, Field(ge=SIDE_RANGE[0], le=SIDE_RANGE[1])]


class _Common(TypedDict):
    prompt: Prompt
    model: NotRequired[ModelField | None]
    mode: NotRequired[Literal["t2v", "i2v"] | None]
    """From a text, or from an image and a text; what is not said follows from whether there is an image."""
    negative_prompt: NotRequired[NegativePrompt | None]
    n: NotRequired[Annotated[int, Field(ge=1, le=MAX_VIDEOS)] | None]
    size: NotRequired[Annotated[str, StringConstraints(max_length=20)] | None]
    """`WIDTHxHEIGHT`, instead of the two."""
    width: NotRequired[_Side | None]
    height: NotRequired[_Side | None]
    num_frames: NotRequired[Annotated[int, Field(ge=1, le=MAX_FRAMES)] | None]
    """4 k + 1, such as 49 or 81."""
    fps: NotRequired[Annotated[float, Field(ge=FPS_RANGE[0], le=FPS_RANGE[1], allow_inf_nan=False)] | None]
    seed: NotRequired[Annotated[int, Field(ge=0, le=MAX_SEED)] | None]
    """Video i has the seed + i. Without one it is drawn by lot, and told in the answer."""
    steps: NotRequired[Annotated[int, Field(ge=1, le=MAX_STEPS)] | None]
    guidance_scale: NotRequired[Guidance | None]
    guidance_scale_2: NotRequired[Guidance | None]
    """Of the second network, for models that have two."""
    response_format: NotRequired[Literal["url", "b64_mp4"] | None]
    user: NotRequired[User | None]


@with_config(STRICT)
class VideoBody(_Common):
    """The request's body; as a form it has the image in the part `image`."""

    image: NotRequired[GivenImage | Data | None]
    """To start from: base64, a data URL, or a URL."""
    loras: NotRequired[Annotated[list[LoraChoice | Data], Field(max_length=MAX_LORAS)] | None]


@with_config(STRICT)
class _Normal(_Common):
    image: NotRequired[KeptFile | None]
    loras: NotRequired[Annotated[list[KeptLora], Field(max_length=MAX_LORAS)]]


SHAPE: Final[TypeAdapter[Any]] = TypeAdapter(VideoBody)
_NORMAL: Final[TypeAdapter[Any]] = TypeAdapter(_Normal)
_KNOWN: Final = frozenset(VideoBody.__annotations__) | _Common.__annotations__.keys()
_WHOLE: Final = ("n", "width", "height", "num_frames", "seed", "steps")
_REAL: Final = ("fps", "guidance_scale", "guidance_scale_2")
_MODES: Final = ("t2v", "i2v")


def check_fields(body: Body) -> None:
    """Check what a client sent, its image in whatever form.

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    check_known(body, _KNOWN)
    mode = body.get("mode")
    if mode is not None and mode not in _MODES:
        raise InvalidRequest("mode is t2v (from a text) or i2v (from an image): others are not made here", param="mode")
    validate(SHAPE, body)
    _check(body)


def form_values(fields: Mapping[str, str]) -> Body:
    """A form's fields, which are all texts, with the values that they mean. Empty ones are not there.

    Raises:
        InvalidRequest: a text means nothing.
    """
    return from_form(fields, _WHOLE, _REAL)


def normal(body: Body) -> Body:
    """The request that a planner takes: `flows.video.plan_video`. It is what is recorded and planned again; a preview
    may leave out all but the prompt.

    Raises:
        InvalidRequest: it is none.
    """
    check_known(body, _KNOWN)
    validate(_NORMAL, body)
    width, height = _check(body)
    kept = {name: value for name, value in body.items() if name not in ("model", "mode", "size", "user")}
    return {
        **kept,
        "n": body.get("n") or 1,
        "seed": body.get("seed") or 0,
        "width": width,
        "height": height,
        "num_frames": body.get("num_frames") or DEFAULT_FRAMES,
        "fps": body.get("fps") or DEFAULT_FPS,
        "loras": body.get("loras") or [],
        "response_format": body.get("response_format") or "url",
    }


def _check(body: Body) -> tuple[int | None, int | None]:
    """Check what depends on several fields; returns width and height.

    Raises:
        InvalidRequest: they do not go together, or are too much.
    """
    has_image = body.get("image") is not None
    if body.get("mode") == "i2v" and not has_image:
        raise InvalidRequest("mode i2v starts from an image: send it as 'image'", param="image", code="no_image")
    if body.get("mode") == "t2v" and has_image:
        raise InvalidRequest("mode t2v starts from a text alone: leave out 'image', or the mode", param="mode")
    width, height = _sides(body)
    check_seeds(body, "video")
    frames = body.get("num_frames") or DEFAULT_FRAMES
    try:
        Shot.model_validate({"prompt": "-", "seed": 0, "width": width, "height": height, "num_frames": frames})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = str(first["loc"][0]) if first["loc"] else "size"
        place = "size" if body.get("size") and place in ("width", "height") else place
        rule = first["type"] == "value_error"
        said = f"{place}: {first['msg'].removeprefix('Value error, ')}" if rule else sentence(place, first)
        raise InvalidRequest(said, param=place) from error
    return width, height


def _sides(body: Body) -> tuple[int | None, int | None]:
    text, width, height = body.get("size"), body.get("width"), body.get("height")
    if text is None:
        assert width is None or isinstance(width, int)
        assert height is None or isinstance(height, int)
        if (width is None) != (height is None):
            raise InvalidRequest("give both width and height, or neither", param="height" if width else "width")
        return width, height
    if width is not None or height is not None:
        raise InvalidRequest("give 'size', or 'width' and 'height', not both", param="size")
    sides = str(text).split("x")
    if len(sides) != 2 or not all(side.isascii() and side.isdecimal() and len(side) <= 5 for side in sides):
        raise InvalidRequest(f"size is WIDTHxHEIGHT in pixels, such as 832x480, not {text!r}", param="size")
    return int(sides[0]), int(sides[1])
