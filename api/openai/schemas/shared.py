"""Validation common to all text requests: the adapter, plain sentences for its errors, limits, the view."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Final, NamedTuple, NotRequired, TypeVar

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from infra.errors import InvalidRequest
from infra.types import Json
from infra.wording import WANTED, sentence

T = TypeVar("T")
Body = dict[str, Json]

STRICT: Final = ConfigDict(strict=True, extra="ignore")
"""No conversions ("5" is no number, true is no integer); unknown fields are `check_known`'s business."""

MAX_CHOICES: Final = 128
MAX_REQUESTED_TOKENS: Final = 1_000_000
"""Most tokens one request may ask for: answers times the limit of each."""
MAX_LOGIT_BIASES: Final = 1024
MAX_STOPS: Final = 4
_NAME_CHARS: Final = 200
"""Of a field's name that are repeated in an error."""
_NEAR: Final = 0.7
"""How alike a field's name must be to be proposed for one that is not known; 1 is the same."""
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}

Text = Annotated[str, StringConstraints(max_length=10_000_000)]
ModelField = Annotated[str, StringConstraints(min_length=1, max_length=500)]
User = Annotated[str, StringConstraints(max_length=1000)]
Temperature = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
TokenLimit = Annotated[int, Field(ge=0, le=MAX_REQUESTED_TOKENS)]
Window = Annotated[int, Field(ge=0, le=1_000_000)]
Bias = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
Biases = Annotated[dict[str, Bias], Field(max_length=MAX_LOGIT_BIASES)]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Stop = StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)]
Breakers = Annotated[list[StopText], Field(min_length=1, max_length=64)]
Choices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]
PairName = Annotated[str, StringConstraints(max_length=64)]
PairValue = Annotated[str, StringConstraints(max_length=512)]
Metadata = Annotated[dict[PairName, PairValue], Field(max_length=16)]


class StreamOptions(TypedDict):
    """How a stream is dressed."""

    include_usage: NotRequired[bool | None]
    include_obfuscation: NotRequired[bool | None]


class Sampling(TypedDict):
    """How the next token is chosen: OpenAI's fields, then llama.cpp's own that people with local models expect.

    `grammar` is left out on purpose: a small ambiguous grammar keeps llama.cpp busy for minutes and stops every other
    request of the same engine. `response_format` with a JSON schema does what most people want of it.
    """

    frequency_penalty: NotRequired[Penalty | None]
    presence_penalty: NotRequired[Penalty | None]
    temperature: NotRequired[Temperature | None]
    top_p: NotRequired[Share | None]
    seed: NotRequired[Seed | None]
    stop: NotRequired[Stop | None]
    logit_bias: NotRequired[Biases | None]

    top_k: NotRequired[Window | None]
    min_p: NotRequired[Share | None]
    top_n_sigma: NotRequired[Annotated[float, Field(ge=-1, le=100, allow_inf_nan=False)] | None]
    typical_p: NotRequired[Share | None]
    repeat_penalty: NotRequired[Factor | None]
    repeat_last_n: NotRequired[Window | None]
    mirostat: NotRequired[Annotated[int, Field(ge=0, le=2)] | None]
    mirostat_tau: NotRequired[Factor | None]
    mirostat_eta: NotRequired[Factor | None]
    dry_multiplier: NotRequired[Factor | None]
    dry_base: NotRequired[Factor | None]
    dry_allowed_length: NotRequired[Window | None]
    dry_penalty_last_n: NotRequired[Window | None]
    dry_sequence_breakers: NotRequired[Breakers | None]
    xtc_probability: NotRequired[Share | None]
    xtc_threshold: NotRequired[Share | None]
    ignore_eos: NotRequired[bool | None]


class View(NamedTuple):
    """What the front needs to know of a checked request.

    `choices` is the number of answers wanted (for completions: of all prompts); `max_tokens` the limit of each answer
    in tokens, None = none given.
    """

    model: str
    stream: bool = False
    include_usage: bool = False
    choices: int = 1
    max_tokens: int | None = None
    user: str | None = None


def truth(name: str, text: str) -> bool:
    """What a form's text says of the field `name`.

    Raises:
        InvalidRequest: it is neither true nor false.
    """
    value = _TRUTHS.get(text.lower())
    if value is None:
        raise InvalidRequest(f"'{name}' must be true or false", param=name)
    return value


def validate(adapter: TypeAdapter[T], body: Mapping[str, Json]) -> None:
    """Check a body against an adapter.

    Raises:
        InvalidRequest: with the first fault in one sentence, and its path as `param`.
    """
    try:
        adapter.validate_python(body)
    except ValidationError as error:
        raise _plain(error.errors(include_url=False, include_context=True), body) from error


def check_known(body: Mapping[str, Json], known: frozenset[str]) -> None:
    """Refuse fields that nobody here understands. Not for far services: they may know more than we do.

    Raises:
        InvalidRequest: `Unrecognized request argument supplied: foo`, with near names.
    """
    if body.keys() <= known:
        return
    name = next(key for key in body if key not in known)
    near = get_close_matches(name, sorted(known), n=3, cutoff=_NEAR)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    if name == "grammar":
        hint = "; give the form of the answer by response_format with a json_schema"
    raise InvalidRequest(
        f"Unrecognized request argument supplied: {name[:200]}{hint}", param=name[:200], code="unknown_parameter"
    )


def wants_usage(body: Mapping[str, Json]) -> bool:
    """Whether the client asked for the usage chunk of a stream."""
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def check_amount(choices: int, max_tokens: int | None) -> None:
    """Refuse a request for more text than anyone reads.

    Raises:
        InvalidRequest: more than a million tokens over all answers.
    """
    if max_tokens is not None and choices * max_tokens > MAX_REQUESTED_TOKENS:
        raise InvalidRequest(
            f"{choices} answers of up to {max_tokens} tokens are more than the {MAX_REQUESTED_TOKENS} tokens that one "
            "request may ask for; ask for fewer or shorter answers",
            param="n",
        )


def text_of(content: Json) -> str:
    """The text of a message's content: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "".join(part for part in parts if isinstance(part, str))


def _plain(details: Sequence[ErrorDetails], body: Mapping[str, Json]) -> InvalidRequest:
    """The one fault worth telling. A union reports every alternative that did not fit: what only has a wrong value
    came closer than what has a wrong type, and the deepest came closest."""
    paths = [_path(detail, body) for detail in details]
    kinds = [detail["type"] not in WANTED for detail in details]
    best = max(range(len(details)), key=lambda place: (kinds[place], len(paths[place]), -place))
    told, path = details[best], paths[best]
    param = ".".join(str(part)[:_NAME_CHARS] for part in path)
    if kinds[best]:
        return InvalidRequest(sentence(param, told), param=param)
    here = [detail["type"] for detail, where in zip(details, paths, strict=True) if where == path]
    return InvalidRequest(f"'{param}' must be {' or '.join(dict.fromkeys(map(WANTED.__getitem__, here)))}", param=param)


def _path(detail: ErrorDetails, body: Mapping[str, Json]) -> tuple[str | int, ...]:
    """Where the fault is in the body; pydantic's location also names alternatives of unions, which are not there."""
    here: Json = dict(body)
    path: list[str | int] = []
    for part in detail["loc"]:
        if (isinstance(here, dict) and part in here) or (
            isinstance(here, list) and isinstance(part, int) and part < len(here)
        ):
            here = here[part]  # type: ignore[index]  # the condition has matched key and container
            path.append(part)
    if detail["type"] == "missing":
        path.append(detail["loc"][-1])
    elif detail["type"].startswith("union_tag"):
        path.append(_tag(detail))
    return tuple(path)


def _tag(detail: ErrorDetails) -> str:
    return str(detail["ctx"]["discriminator"]).strip("'")
