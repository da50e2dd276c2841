"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`: a form, checked once its file has come."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict

from api.multipart import Form
from api.openai.schemas.shared import STRICT, Body, ModelField, check_known, truth, validate
from infra.errors import InvalidRequest
from infra.ffmpeg import MOST_SECONDS
from infra.types import Json
from tasks.languages import language_code

_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class SoundFile(TypedDict):
    """The recording: the reference under which it is kept, and what its sender said of it. Its length is known where
    several engines could hear it."""

    blob: Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64})?$")]
    name: str
    media_type: str
    bytes: Annotated[int, Field(ge=0)]
    seconds: NotRequired[Annotated[float, Field(ge=0, le=2 * MOST_SECONDS, allow_inf_nan=False)] | None]


@with_config(STRICT)
class TranscriptionBody(TypedDict):
    """A transcription as it is kept; a translation has no `stream`. OpenAI's `include` and speakers are not offered."""

    task: Literal["transcribe", "translate"]
    model: ModelField
    file: SoundFile
    language: NotRequired[Annotated[str, StringConstraints(max_length=40)] | None]
    prompt: NotRequired[Annotated[str, StringConstraints(max_length=4096)] | None]
    response_format: NotRequired[Literal["json", "text", "srt", "verbose_json", "vtt"] | None]
    temperature: NotRequired[_Share | None]
    timestamp_granularities: NotRequired[Annotated[list[Literal["word", "segment"]], Field(max_length=2)] | None]
    stream: NotRequired[bool | None]


KNOWN: Final = frozenset(TranscriptionBody.__annotations__)
_ADAPTER: Final = TypeAdapter(TranscriptionBody)
_LISTS: Final = ("timestamp_granularities",)
_AUTO: Final = "chunking_strategy"
_STREAMED: Final = ("json", "text")
"""The formats without times: a stream's events have none."""


def form_schema(task: str) -> dict[str, Any]:
    """The JSON schema of the form that clients send."""
    found = _ADAPTER.json_schema()
    text = {"type": "string"}
    ours = ("task", *_LISTS) if task == "transcribe" else ("task", "stream", *_LISTS)
    fields: dict[str, Any] = {name: text for name in found["properties"] if name not in ours}
    fields["file"] = {"type": "string", "format": "binary"}
    fields |= {f"{name}[]": {"type": "array", "items": text} for name in _LISTS}
    return {"type": "object", "properties": fields, "required": ["file", "model"]}


def check(body: Body) -> None:
    """Check a transcription.

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    check_known(body, KNOWN)
    validate(_ADAPTER, body)
    if body.get("stream") is not True:
        return
    if body["task"] == "translate":
        raise InvalidRequest("a translation comes whole: leave out 'stream'", param="stream")
    if (form := body.get("response_format") or "json") not in _STREAMED:
        raise InvalidRequest(
            f"a transcript is streamed as its bare text: ask for the response_format 'json' or 'text' instead of "
            f"'{form}', or leave out 'stream'",
            param="response_format",
        )


def normal(body: Body) -> Body:
    """The request that a planner takes; a preview may leave out all of the file but its length in seconds.

    Raises:
        InvalidRequest: it is none.
    """
    file = body.get("file")
    made: Body = {"task": "transcribe", **body}
    if isinstance(file, dict):
        made["file"] = {"blob": "", "name": "audio", "media_type": "", "bytes": 0, **file}
    check(made)
    return made


def body_of(form: Form, task: str, file: Mapping[str, Json]) -> Body:
    """A form's fields, with the values that their texts mean; a language by its code.

    Raises:
        InvalidRequest: a text means nothing.
    """
    fields: dict[str, Json] = {name: value for name, value in form.fields.items() if value != ""}
    for name, values in form.lists.items():
        fields[name.removesuffix("[]")] = list[Json](values)
    for name in _LISTS:
        if isinstance(fields.get(name), str):
            fields[name] = [fields[name]]
    if "temperature" in fields:
        fields["temperature"] = _number(str(fields["temperature"]))
    if "language" in fields:
        fields["language"] = _language(str(fields["language"]))
    if truth("stream", str(fields.pop("stream", "false"))):
        fields["stream"] = True
    if fields.get(_AUTO) == "auto":  # what is done in any case
        del fields[_AUTO]
    return {**fields, "task": task, "file": dict(file)}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidRequest("'temperature' must be a number", param="temperature") from error


def _language(text: str) -> str:
    code = language_code(text)
    if code is None:
        raise InvalidRequest(
            f"{text[:40]!r} is no language that is understood here: give its ISO 639-1 code, such as en",
            param="language",
        )
    return code
