"""`POST /v1/images/generations`, `/edits` and `/variations`."""

from functools import partial
from typing import Final

from api.media.making import Making
from api.openai.schemas.images import Task, check_fields, form_values
from workers.types import Capability

DRAWS: Final[dict[str, Task]] = {
    "/v1/images/generations": "generate",
    "/v1/images/edits": "edit",
    "/v1/images/variations": "variation",
}
"""The paths, and what is done there."""
PICTURES: Final[dict[Task, tuple[str, ...]]] = {"generate": (), "edit": ("image", "mask"), "variation": ("image",)}
"""The fields of each that are pictures."""


def drawing(task: Task) -> Making:
    """What the route of a task makes."""
    return Making(Capability.IMAGES, PICTURES[task], partial(check_fields, task=task), form_values, {"task": task})
