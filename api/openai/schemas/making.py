"""What requests for images and for videos have in common: their shapes' pieces, forms, and the seeds of several."""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Final, NotRequired

import orjson
from pydantic import Field, StringConstraints, with_config
from typing_extensions import TypedDict

from api.openai.schemas.shared import STRICT, Body
from infra.errors import InvalidRequest
from infra.types import Json
from workers.engine.drawing import MAX_GUIDANCE, MAX_SEED

MAX_PROMPT_CHARS: Final = 32_000
"""OpenAI's own for its latest models; a pipeline reads as much of it as its text encoder takes."""

Prompt = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PROMPT_CHARS)]
NegativePrompt = Annotated[str, StringConstraints(max_length=MAX_PROMPT_CHARS)]
Guidance = Annotated[float, Field(ge=0, le=MAX_GUIDANCE, allow_inf_nan=False)]
Data = Annotated[str, StringConstraints(min_length=1)]
_Ref = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
_DIGITS: Final = re.compile(r"-?[0-9]{1,20}")


@with_config(STRICT)
class GivenImage(TypedDict):
    """An image in JSON: `data` in base64 or as a data URL, or the `url` of something on the public internet."""

    data: NotRequired[Data]
    url: NotRequired[Data]
    filename: NotRequired[str]


@with_config(STRICT)
class LoraChoice(TypedDict):
    """A LoRA adapter: its `id` (`name:…` or `sha256:…`), its file in base64, a URL, or a path; how much of it, and what
    errors are to call it."""

    id: NotRequired[str]
    file: NotRequired[str]
    data: NotRequired[str]
    url: NotRequired[str]
    model: NotRequired[str]
    path: NotRequired[str]
    name: NotRequired[str]
    weight: NotRequired[Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)] | None]


class KeptFile(TypedDict):
    """A file of a request as it is planned: where its bytes are kept."""

    blob: _Ref


@with_config(STRICT)
class KeptLora(TypedDict):
    """An adapter of a request as it is planned."""

    blob: _Ref
    weight: float
    name: str


def from_form(fields: Mapping[str, str], whole: Collection[str], real: Collection[str]) -> Body:
    """A form's fields, which are all texts, with the values that they mean: numbers under the names in `whole` and
    `real`, a list under `loras`. Empty ones are not there.

    Raises:
        InvalidRequest: a text means nothing.
    """
    return {name: _value(name, text, whole, real) for name, text in fields.items() if text}


def check_seeds(body: Body, what: str) -> None:
    """See that every one of a request's images or videos (`what`) has a seed.

    Raises:
        InvalidRequest: the last one's would be too large.
    """
    seed, count = body.get("seed") or 0, body.get("n") or 1
    assert isinstance(seed, int)
    assert isinstance(count, int)
    if seed + count - 1 > MAX_SEED:
        raise InvalidRequest(f"the last {what}'s seed, seed + n - 1, is at most {MAX_SEED}", param="seed")


def _value(name: str, text: str, whole: Collection[str], real: Collection[str]) -> Json:
    if name in whole and _DIGITS.fullmatch(text):
        return int(text)
    if name in real:
        try:
            return float(text)
        except ValueError as error:
            raise InvalidRequest(f"'{name}' must be a number", param=name) from error
    if name == "loras":
        try:
            found: Json = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest("in a form, 'loras' is a list in JSON", param="loras") from error
        return found
    return text
