"""The `input` of a response: its items, what is taken of them and what is refused."""

from typing import Annotated, Final, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from api.openai.schemas.messages import MAX_MESSAGES, MAX_PARTS, CallId
from api.openai.schemas.shared import Body, Text
from infra.errors import InvalidRequest
from infra.types import Json

PreviousId = Annotated[str, Field(min_length=1, max_length=80)]
"""A response to go on from."""
Sealed = Annotated[str, Field(min_length=1, max_length=20 * 2**20)]
"""What a compaction holds, as OpenAI's document bounds it."""
COMPACTION: Final = "compaction"


class _TextPart(TypedDict):
    type: Literal["input_text", "output_text"]
    text: Text


class _RefusalPart(TypedDict):
    type: Literal["refusal"]
    refusal: Text


class _ImagePart(TypedDict):
    type: Literal["input_image"]
    image_url: str
    detail: NotRequired[str | None]


_Part = Annotated[_TextPart | _RefusalPart | _ImagePart, Field(discriminator="type")]


class _Message(TypedDict):
    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    content: Text | Annotated[list[_Part], Field(max_length=MAX_PARTS)]


class _Call(TypedDict):
    type: Literal["function_call"]
    call_id: CallId
    name: str
    arguments: Text


class _CallOutput(TypedDict):
    type: Literal["function_call_output"]
    call_id: CallId
    output: Text | Annotated[list[_TextPart], Field(max_length=MAX_PARTS)]


class _Reasoning(TypedDict):
    type: Literal["reasoning"]


class _Compaction(TypedDict):
    type: Literal["compaction"]
    encrypted_content: Sealed


_Item = Annotated[_Message | _Call | _CallOutput | _Reasoning | _Compaction, Field(discriminator="type")]
Input = Text | Annotated[list[_Item], Field(max_length=MAX_MESSAGES)]

_TAKEN: Final = ("message", "function_call", "function_call_output", "reasoning", COMPACTION)


def typed(given: Json) -> Json:
    """The input, its items each with their type: a message may come without."""
    if not isinstance(given, list):
        return given
    return [
        {"type": "message", **item} if isinstance(item, dict) and "type" not in item and "role" in item else item
        for item in given
    ]


def check_kinds(given: Json, *, far: bool) -> None:
    """Refuse in plain words the items that OpenAI knows and we do not; `far`: for a model that may see images.

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    for index, item in enumerate(_list(typed(given))):
        kind = item.get("type", "item_reference") if isinstance(item, dict) else None
        if isinstance(kind, str) and kind not in _TAKEN:
            raise InvalidRequest(
                f"the models here know no item of the type '{kind[:100]}'; items are {', '.join(_TAKEN)}",
                param=f"input.{index}.type",
                code="unsupported_value",
            )
        if isinstance(item, dict):
            _check_parts(_list(item.get("content")), f"input.{index}.content", far)


def require_input(body: Body) -> None:
    """See that there is something to read.

    Raises:
        InvalidRequest: there is nothing.
    """
    if body.get("input") in (None, []) and body.get("previous_response_id") is None:
        raise InvalidRequest("give an 'input', or a 'previous_response_id' to go on from", param="input")


def _check_parts(parts: list[Json], where: str, far: bool) -> None:
    for index, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "input_file" or (kind == "input_image" and not far):
            raise InvalidRequest(
                f"this model reads text only: leave out the {str(kind).removeprefix('input_')}",
                param=f"{where}.{index}",
                code="unsupported_value",
            )


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
