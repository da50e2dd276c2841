"""`POST /v1/responses`: what is taken, what is ignored, what is refused.

Honoured: model, input, instructions, previous_response_id, store, background, stream, tools (functions), tool_choice,
parallel_tool_calls, text.format, max_output_tokens, temperature, top_p, top_logprobs, include
(message.output_text.logprobs), truncation, metadata, and, as in a chat, `Sampling`, reasoning.effort by models that
know it, enable_thinking, chat_template_kwargs.

| field | here | reason |
|---|---|---|
| conversation, prompt, context_management | 400 | previous_response_id does what the first one does |
| tools of OpenAI's own (web_search, mcp, …), custom tools | 400 | the model could not call them |
| input_image | taken; 400 by a model of this install | a far service may see |
| input_file, item_reference, items of OpenAI's own tools | 400 | there is nothing to look them up in |
| reasoning items | taken, not shown to the model | clients send back what they were given |
| max_tool_calls | no effect | it bounds OpenAI's own tools |
| user, prompt_cache_*, safety_identifier, service_tier, moderation | no effect | hints |
| text.verbosity, include of other things | no effect | there is nothing of the kind |
"""

from typing import Annotated, Final, Literal, NotRequired

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from api.openai.schemas.chat import FormName, Hint, ShortText
from api.openai.schemas.forms import check_form
from api.openai.schemas.messages import MAX_MESSAGES, MAX_PARTS, MAX_TOOLS, CallId, Name
from api.openai.schemas.shared import (
    MAX_REQUESTED_TOKENS,
    STRICT,
    Body,
    ModelField,
    Sampling,
    Text,
    User,
    check_known,
    validate,
)
from infra.errors import InvalidRequest
from infra.types import Json

ResponseId = Annotated[str, Field(min_length=1, max_length=80)]


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


_Item = Annotated[_Message | _Call | _CallOutput | _Reasoning, Field(discriminator="type")]


class _Function(TypedDict):
    type: Literal["function"]
    name: Name
    description: NotRequired[str | None]
    parameters: NotRequired[dict[str, object] | None]
    strict: NotRequired[bool | None]


class _NamedFunction(TypedDict):
    type: Literal["function"]
    name: str


class _AllowedTools(TypedDict):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[_NamedFunction], Field(min_length=1, max_length=MAX_TOOLS)]


_Choice = Literal["none", "auto", "required"] | Annotated[_NamedFunction | _AllowedTools, Field(discriminator="type")]


class _FormatText(TypedDict):
    type: Literal["text"]


class _FormatJson(TypedDict):
    type: Literal["json_object"]


class _FormatSchema(TypedDict):
    type: Literal["json_schema"]
    name: FormName
    schema: dict[str, object]
    description: NotRequired[str | None]
    strict: NotRequired[bool | None]


class _TextConfig(TypedDict):
    format: NotRequired[Annotated[_FormatText | _FormatJson | _FormatSchema, Field(discriminator="type")] | None]
    verbosity: NotRequired[Literal["low", "medium", "high"] | None]


class _ReasoningConfig(TypedDict):
    effort: NotRequired[Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None]
    summary: NotRequired[ShortText | None]
    generate_summary: NotRequired[ShortText | None]


class _StreamOptions(TypedDict):
    include_obfuscation: NotRequired[bool | None]


@with_config(STRICT)
class ResponsesBody(Sampling):
    """The request's body."""

    model: ModelField
    input: NotRequired[Text | Annotated[list[_Item], Field(max_length=MAX_MESSAGES)] | None]
    instructions: NotRequired[Text | None]
    previous_response_id: NotRequired[ResponseId | None]
    store: NotRequired[bool | None]
    stream: NotRequired[bool | None]
    stream_options: NotRequired[_StreamOptions | None]
    tools: NotRequired[Annotated[list[_Function], Field(max_length=MAX_TOOLS)] | None]
    tool_choice: NotRequired[_Choice | None]
    parallel_tool_calls: NotRequired[bool | None]
    text: NotRequired[_TextConfig | None]
    max_output_tokens: NotRequired[Annotated[int, Field(ge=1, le=MAX_REQUESTED_TOKENS)] | None]
    top_logprobs: NotRequired[Annotated[int, Field(ge=0, le=20)] | None]
    include: NotRequired[Annotated[list[ShortText], Field(max_length=32)] | None]
    truncation: NotRequired[Literal["auto", "disabled"] | None]
    metadata: NotRequired[Annotated[dict[Annotated[str, Field(max_length=64)], ShortText], Field(max_length=16)] | None]
    reasoning: NotRequired[_ReasoningConfig | None]
    enable_thinking: NotRequired[bool | None]
    chat_template_kwargs: NotRequired[
        Annotated[dict[FormName, str | int | float | bool | None], Field(max_length=16)] | None
    ]
    max_tool_calls: NotRequired[Annotated[int, Field(ge=0)] | None]
    user: NotRequired[User | None]
    safety_identifier: NotRequired[User | None]
    prompt_cache_key: NotRequired[User | None]
    prompt_cache_options: NotRequired[Hint | None]
    prompt_cache_retention: NotRequired[ShortText | None]
    service_tier: NotRequired[ShortText | None]
    moderation: NotRequired[Hint | None]
    background: NotRequired[bool | None]
    conversation: NotRequired[None]
    prompt: NotRequired[None]
    context_management: NotRequired[None]


KNOWN: Final = frozenset(ResponsesBody.__annotations__) | frozenset(Sampling.__annotations__)
_ADAPTER: Final = TypeAdapter(ResponsesBody)

_MISSING: Final = {
    "conversation": "there are no conversation objects here: name the response to go on from in 'previous_response_id'",
    "prompt": "there are no stored prompts here: give the text in 'instructions' and 'input'",
    "context_management": "a conversation is not compacted here: leave it out, or set 'truncation' to 'auto'",
}


def check(body: Body, *, far: bool = False) -> None:
    """Check a request for a response; `far`: for a model of a far service, which may see images, and know fields
    that we do not.

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    for field, sentence in _MISSING.items():
        if body.get(field) not in (None, False):
            raise InvalidRequest(sentence, param=field, code="unsupported_parameter")
    if body.get("background") is True and body.get("store") is False:
        raise InvalidRequest(
            "a response that is made in the background is stored, to be fetched later: leave out 'store'", param="store"
        )
    if not far:
        check_known(body, KNOWN)
    _check_kinds(body, far)
    validate(_ADAPTER, {**body, "input": typed(body.get("input"))})
    if body.get("input") in (None, []) and body.get("previous_response_id") is None:
        raise InvalidRequest("give an 'input', or a 'previous_response_id' to go on from", param="input")
    _check_forms(body)


def typed(given: Json) -> Json:
    """The input, its items each with their type: a message may come without."""
    if not isinstance(given, list):
        return given
    return [
        {"type": "message", **item} if isinstance(item, dict) and "type" not in item and "role" in item else item
        for item in given
    ]


_TAKEN_ITEMS: Final = ("message", "function_call", "function_call_output", "reasoning")


def _check_kinds(body: Body, far: bool) -> None:
    """Refuse in plain words what OpenAI knows and we do not."""
    for index, tool in enumerate(_list(body.get("tools"))):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind != "function":
            raise InvalidRequest(
                f"there is no tool of the type '{kind[:100]}' here: describe your own as a function",
                param=f"tools.{index}.type",
                code="unsupported_value",
            )
    for index, item in enumerate(_list(typed(body.get("input")))):
        kind = item.get("type", "item_reference") if isinstance(item, dict) else None
        if isinstance(kind, str) and kind not in _TAKEN_ITEMS:
            raise InvalidRequest(
                f"the models here know no item of the type '{kind[:100]}'; items are {', '.join(_TAKEN_ITEMS)}",
                param=f"input.{index}.type",
                code="unsupported_value",
            )
        if isinstance(item, dict):
            _check_parts(_list(item.get("content")), f"input.{index}.content", far)


def _check_parts(parts: list[Json], where: str, far: bool) -> None:
    for index, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "input_file" or (kind == "input_image" and not far):
            raise InvalidRequest(
                f"this model reads text only: leave out the {str(kind).removeprefix('input_')}",
                param=f"{where}.{index}",
                code="unsupported_value",
            )


def _check_forms(body: Body) -> None:
    """Look at what becomes a grammar, and at a choice of tools that are not there."""
    config = body.get("text")
    form = config.get("format") if isinstance(config, dict) else None
    if isinstance(form, dict):
        check_form(form.get("schema"), "text.format.schema")
    names = []
    for index, tool in enumerate(_list(body.get("tools"))):
        assert isinstance(tool, dict)  # the adapter has seen to it
        check_form(tool.get("parameters"), f"tools.{index}.parameters")
        names.append(tool["name"])
    choice = body.get("tool_choice")
    if choice in (None, "none", "auto"):
        return
    if not names:
        raise InvalidRequest("'tool_choice' needs tools to choose from: give 'tools' too", param="tool_choice")
    for name in _chosen(choice):
        if name not in names:
            raise InvalidRequest(
                f"'tool_choice' names the tool '{name}', which is not among 'tools'", param="tool_choice"
            )


def _chosen(choice: Json) -> list[Json]:
    """The names that a choice mentions."""
    if not isinstance(choice, dict):
        return []
    tools = _list(choice.get("tools")) if choice["type"] == "allowed_tools" else [choice]
    return [tool.get("name") for tool in tools if isinstance(tool, dict)]


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
