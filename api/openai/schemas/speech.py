"""`POST /v1/audio/speech`: the request as OpenAI documents it."""

from typing import Annotated, Final, Literal, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict

from api.openai.schemas.shared import STRICT, Body, ModelField, User, check_known, validate
from flows.speech import form_of, is_speakable
from infra.errors import InvalidRequest

MAX_CHARS: Final = 200_000
"""Of a text: some three hours of speech."""
_PLAIN_CHARS: Final = 50_000
"""The same where the answer is not compressed."""
_PLAIN: Final = frozenset({"wav", "pcm", "flac"})

_Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
_Input = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CHARS)]


class VoiceId(TypedDict):
    """A voice by its id."""

    id: _Name


@with_config(STRICT)
class SpeechBody(TypedDict):
    """The request's body. `instructions` are taken, and followed by far services only.

    OpenAI's voices mean the model's usual one. Without `stream_format` the answer comes as it is spoken, or is spoken
    by several engines at once; with one it comes as it is spoken.
    """

    model: ModelField
    input: _Input
    voice: NotRequired[_Name | VoiceId | None]
    instructions: NotRequired[Annotated[str, StringConstraints(max_length=4096)] | None]
    response_format: NotRequired[Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | None]
    speed: NotRequired[Annotated[float, Field(ge=0.25, le=4, allow_inf_nan=False)] | None]
    stream_format: NotRequired[Literal["sse", "audio"] | None]
    user: NotRequired[User | None]


KNOWN: Final = frozenset(SpeechBody.__annotations__)
SHAPE: Final = TypeAdapter(SpeechBody)


def check(body: Body, *, unknown_fields: bool = False) -> None:
    """Check a request for speech.

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    if not unknown_fields:
        check_known(body, KNOWN)
    validate(SHAPE, body)
    text, speed = str(body["input"]), body.get("speed") or 1.0
    if not is_speakable(text):
        raise InvalidRequest("'input' has no letter, digit or symbol in it that could be spoken", param="input")
    assert isinstance(speed, int | float)
    most = int((_PLAIN_CHARS if form_of(body) in _PLAIN else MAX_CHARS) * min(1.0, speed))
    if len(text) > most:
        hint = ", or another response_format: mp3, opus and aac are smaller" if form_of(body) in _PLAIN else ""
        raise InvalidRequest(
            f"'input' has {len(text)} characters; at this speed and in this format {most} are the most: send less"
            f"{hint}",
            param="input",
            code="string_above_max_length",
        )
