"""`POST /v1/images/generations`, `/edits` and `/variations`: what a client may send, and the request that all become.

OpenAI's `background`, `quality`, `style`, `moderation` and `input_fidelity` are taken where they ask for nothing that
would have to be done: these models know none of them. The events of a stream say the first two as they were asked for.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, with_config
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
from api.openai.schemas.shared import STRICT, Body, ModelField, User, check_known, truth, validate
from infra.errors import InvalidRequest
from infra.types import Json
from workers.engine.drawing import MAX_LORAS, MAX_PIXELS, MAX_PREVIEWS, MAX_SEED, MAX_STEPS, MULTIPLE, SIDE_RANGE

MAX_IMAGES: Final = 10
"""OpenAI's own."""

Task = Literal["generate", "edit", "variation"]
_Size = Annotated[str, StringConstraints(max_length=20)]
_Strength = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
_Loras = Annotated[list[LoraChoice | Data], Field(max_length=MAX_LORAS)]


class _Common(TypedDict):
    model: NotRequired[ModelField | None]
    n: NotRequired[Annotated[int, Field(ge=1, le=MAX_IMAGES)] | None]
    size: NotRequired[_Size | None]
    """`WIDTHxHEIGHT`, or `auto`: what the model was made for; of an edit that of its image."""
    response_format: NotRequired[Literal["url", "b64_json"] | None]
    output_format: NotRequired[Literal["png", "jpeg", "webp"] | None]
    output_compression: NotRequired[Annotated[int, Field(ge=0, le=100)] | None]
    """Quality of JPEG and WebP."""
    user: NotRequired[User | None]

    seed: NotRequired[Annotated[int, Field(ge=0, le=MAX_SEED)] | None]
    """Image i has the seed + i. Without one it is drawn by lot, and told in the answer."""
    steps: NotRequired[Annotated[int, Field(ge=1, le=MAX_STEPS)] | None]
    guidance_scale: NotRequired[Guidance | None]
    true_cfg_scale: NotRequired[Guidance | None]
    """For models that have the guidance in them, such as Flux: how strongly `negative_prompt` is heeded."""
    negative_prompt: NotRequired[NegativePrompt | None]


class _Prompted(_Common):
    prompt: Prompt


class _Streamed(TypedDict):
    stream: NotRequired[bool | None]
    """Each image as an event, when it is drawn."""
    partial_images: NotRequired[Annotated[int, Field(ge=0, le=MAX_PREVIEWS)] | None]
    """Looks at each unfinished image in a stream; of few steps it may be fewer."""


class _OpenAi(TypedDict):
    """Fields of OpenAI's that have no effect on what is drawn."""

    background: NotRequired[Literal["auto", "opaque"] | None]
    quality: NotRequired[Literal["auto", "standard", "hd", "low", "medium", "high", "xhigh", "max"] | None]
    style: NotRequired[Literal["vivid", "natural"] | None]
    moderation: NotRequired[Literal["auto", "low"] | None]
    input_fidelity: NotRequired[Literal["high", "low"] | None]
    safety_identifier: NotRequired[User | None]


@with_config(STRICT)
class ImagesBody(_Prompted, _Streamed, _OpenAi):
    """The body of `/v1/images/generations`."""

    loras: NotRequired[_Loras | None]


@with_config(STRICT)
class ImageEditBody(_Prompted, _Streamed, _OpenAi):
    """The body of `/v1/images/edits`; as a form it has the image in the part `image`, a mask in `mask`."""

    image: GivenImage | Data
    mask: NotRequired[GivenImage | Data | None]
    strength: NotRequired[_Strength | None]
    """How far the result may go from the image; 1 is all the way."""
    loras: NotRequired[_Loras | None]


@with_config(STRICT)
class ImageVariationBody(_Common):
    """The body of `/v1/images/variations`; as a form it has the image in the part `image`."""

    image: GivenImage | Data
    strength: NotRequired[_Strength | None]
    """How far the result may go from the image; 1 is all the way."""
    loras: NotRequired[_Loras | None]


@with_config(STRICT)
class _Normal(_Common, _Streamed):
    task: NotRequired[Task]
    prompt: NotRequired[Prompt]
    image: NotRequired[KeptFile]
    mask: NotRequired[KeptFile]
    strength: NotRequired[_Strength | None]
    loras: NotRequired[Annotated[list[KeptLora], Field(max_length=MAX_LORAS)]]


_BODIES: Final[dict[Task, Any]] = {"generate": ImagesBody, "edit": ImageEditBody, "variation": ImageVariationBody}
SHAPES: Final[dict[Task, TypeAdapter[Any]]] = {task: TypeAdapter(body) for task, body in _BODIES.items()}
_KNOWN: Final = {task: body.__required_keys__ | body.__optional_keys__ for task, body in _BODIES.items()}
_NORMAL: Final = TypeAdapter(_Normal)
_NORMAL_KNOWN: Final = _Normal.__required_keys__ | _Normal.__optional_keys__
_UNUSED: Final = frozenset(_OpenAi.__annotations__)
_EVENTS: Final[dict[Json, str]] = {"generate": "image_generation", "edit": "image_edit"}
"""The kinds of events that tell of a task's images."""
_QUALITIES: Final = ("low", "medium", "high", "xhigh", "max")
_TAKEN_APART: Final = ("model", "size", "user", "output_compression", "stream", "partial_images")
_WHOLE: Final = ("n", "output_compression", "seed", "steps", "partial_images")
_REAL: Final = ("guidance_scale", "true_cfg_scale", "strength")


def check_fields(body: Body, task: Task) -> None:
    """Check what a client sent; of an edit or a variation its image in whatever form.

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    check_known(body, _KNOWN[task])
    if body.get("background") == "transparent":
        raise InvalidRequest("these models draw no transparent background: leave out 'background'", param="background")
    if task != "generate" and not body.get("image"):
        raise InvalidRequest("send the image to start from as 'image'", param="image", code="no_image")
    validate(SHAPES[task], body)
    _check_stream(body)
    size_of(body)
    check_seeds(body, "image")


def form_values(fields: Mapping[str, str]) -> Body:
    """A form's fields, which are all texts, with the values that they mean. Empty ones are not there.

    Raises:
        InvalidRequest: a text means nothing.
    """
    values = from_form(fields, _WHOLE, _REAL)
    if "stream" in values:
        values["stream"] = truth("stream", fields["stream"])
    return values


def normal(body: Body) -> Body:
    """The request that a planner takes: `flows.images.plan_images`. It is what is recorded and planned again; a preview
    may leave out all but the prompt. One that is to be streamed has `events`.

    Raises:
        InvalidRequest: it is none.
    """
    asked, body = body, {name: value for name, value in body.items() if name not in _UNUSED}
    check_known(body, _NORMAL_KNOWN)
    validate(_NORMAL, body)
    check_seeds(body, "image")
    task = body.get("task") or ("edit" if "image" in body else "generate")
    if (task == "generate") == ("image" in body):
        raise InvalidRequest("an edit or a variation has an image, and nothing else has", param="image")
    if (task == "variation") == ("prompt" in body):
        wrong = "a variation has no prompt: leave out 'prompt'" if task == "variation" else "'prompt' is required"
        raise InvalidRequest(wrong, param="prompt")
    width, height = size_of(body) or (None, None)
    kept = {name: value for name, value in body.items() if name not in _TAKEN_APART}
    quality = body.get("output_compression")
    return {
        **kept,
        **_events(task, asked),
        "task": task,
        "prompt": body.get("prompt") or "",
        "n": body.get("n") or 1,
        "seed": body.get("seed") or 0,
        "width": width,
        "height": height,
        "loras": body.get("loras") or [],
        "response_format": body.get("response_format") or "url",
        "output_format": body.get("output_format") or "png",
        "quality": 100 if quality is None else quality,
    }


def _check_stream(body: Body) -> None:
    if body.get("stream") and body.get("response_format") == "url":
        raise InvalidRequest(
            "a stream has its images in it: leave out 'response_format', or 'stream'", param="response_format"
        )


def _events(task: Json, asked: Body) -> Body:
    """What the events of a stream say besides their images, and how many looks at unfinished ones are wanted."""
    if not asked.get("stream"):
        return {}
    _check_stream(asked)
    if task not in _EVENTS:
        raise InvalidRequest("variations come whole: leave out 'stream'", param="stream")
    quality = asked.get("quality")
    told: Body = {
        "type": _EVENTS[task],
        "quality": quality if quality in _QUALITIES else "auto",
        "background": asked.get("background") or "auto",
    }
    return {"events": told, "partial_images": asked.get("partial_images") or 0}


def size_of(body: Body) -> tuple[int, int] | None:
    """Width and height in pixels; None where the model decides.

    Raises:
        InvalidRequest: it is no size, or one that is not drawn.
    """
    text = body.get("size")
    if text is None or text == "auto":
        return None
    width, cross, height = str(text).partition("x")
    if not cross or not all(side.isascii() and side.isdecimal() and len(side) <= 5 for side in (width, height)):
        raise InvalidRequest(f"size is WIDTHxHEIGHT in pixels, such as 1024x1024, or auto, not {text!r}", param="size")
    sides = int(width), int(height)
    least, most = SIDE_RANGE
    if not all(least <= side <= most and side % MULTIPLE == 0 for side in sides) or sides[0] * sides[1] > MAX_PIXELS:
        raise InvalidRequest(
            f"the sides of an image are multiples of {MULTIPLE} from {least} to {most} pixels, and it has at most "
            f"{MAX_PIXELS} pixels, not {text}",
            param="size",
        )
    return sides
