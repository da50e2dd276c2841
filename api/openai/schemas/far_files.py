"""Images and videos of far services: the same checks, and then what the client has set, as it has said it.

OpenAI's own service refuses a field that it does not know: nothing is added, no seed either.
"""

from typing import Final

from api.openai.schemas import images, video
from api.openai.schemas.shared import Body
from infra.errors import InvalidRequest
from infra.types import Json

_OF_IMAGES: Final = (
    "prompt",
    "size",
    "quality",
    "style",
    "background",
    "moderation",
    "input_fidelity",
    "output_format",
    "output_compression",
    "user",
    "safety_identifier",
    "negative_prompt",
    "steps",
    "guidance_scale",
    "true_cfg_scale",
    "strength",
)
_OF_VIDEO: Final = (
    "prompt",
    "negative_prompt",
    "size",
    "width",
    "height",
    "steps",
    "guidance_scale",
    "guidance_scale_2",
    "user",
)
_OURS: Final = ("task", "n", "image", "mask", "num_frames", "fps", "response_format", "events")
"""What of a checked request is for us: how it is cut, and what its answer is like."""


def far_images(body: Body) -> Body:
    """The request that `flows.images.plan_images` takes for a far service: what the service is sent is in `asked`.

    Raises:
        InvalidRequest: it is none, or has adapters.
    """
    return _far(body, images.normal(body), _OF_IMAGES)


def far_video(body: Body) -> Body:
    """The request that `flows.video.plan_video` takes for a far service: what the service is sent is in `asked`.

    Raises:
        InvalidRequest: it is none, or has adapters.
    """
    checked = video.normal(body)
    # They stand in the answer, too: what they are must not be left to another install's settings.
    length = {name: checked[name] for name in ("num_frames", "fps")}
    return _far(body | length, checked, (*_OF_VIDEO, *length))


def refuse_loras(body: Body) -> None:
    """Adapters are files of this install.

    Raises:
        InvalidRequest: a far service would need some.
    """
    if body.get("loras"):
        raise InvalidRequest(
            "this model is served far away, where the LoRA adapters of this server are not: leave out 'loras'",
            param="loras",
        )


def _far(body: Body, checked: Body, fields: tuple[str, ...]) -> Body:
    refuse_loras(body)
    asked: dict[str, Json] = {name: value for name in fields if (value := body.get(name)) is not None}
    ours = {name: checked[name] for name in _OURS if checked.get(name) is not None}
    return {**ours, "seed": body.get("seed"), "asked": asked}
