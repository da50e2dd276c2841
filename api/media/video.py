"""`POST /v1/video/generations`."""

from typing import Final

from api.media.making import Making
from api.openai.schemas.video import check_fields, form_values
from workers.types import Capability

PATH: Final = "/v1/video/generations"
FILMING: Final = Making(Capability.VIDEO, ("image",), check_fields, form_values)
