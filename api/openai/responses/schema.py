"""`POST /v1/responses`: what is taken, what is ignored, what is refused.

Honoured: model, input, instructions, previous_response_id, store, background, stream, tools (functions), tool_choice,
parallel_tool_calls, text.format, max_output_tokens, temperature, top_p, top_logprobs, include
(message.output_text.logprobs), truncation, metadata, and, as in a chat, `Sampling`, reasoning.effort by models that
know it, enable_thinking, chat_template_kwargs.

| field | here | reason |
|---|---|---|
| conversation, prompt | 400 | previous_response_id does what the first one does |
| context_management | 400 | `POST /v1/responses/compact` does that when it is asked |
| tools of OpenAI's own (web_search, mcp, …), custom tools | 400 | the model could not call them |
| input_image | taken; 400 by a model of this install | a far service may see |
| input_file, item_reference, items of OpenAI's own tools | 400 | there is nothing to look them up in |
| reasoning items | taken, not shown to the model | clients send back what they were given |
| compaction items | taken, opened, shown as a system message | a summary made by `POST /v1/responses/compact` |
| max_tool_calls | no effect | it bounds OpenAI's own tools |
| user, prompt_cache_*, safety_identifier, service_tier, moderation | no effect | hints |
| text.verbosity, include of other things | no effect | there is nothing of the kind |
"""

from typing import Annotated, Final, Literal, NotRequired

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from api.openai.responses.input_schema import Input, PreviousId, check_kinds, require_input, typed
from api.openai.schemas.chat import FormName, Hint, ShortText
from api.openai.schemas.forms import check_form
from api.openai.schemas.messages import MAX_TOOLS, Name
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
    input: NotRequired[Input | None]
    instructions: NotRequired[Text | None]
    previous_response_id: NotRequired[PreviousId | None]
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
    "context_management": "nothing is compacted on the way: POST /v1/responses/compact, and go on from its output",
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
    _check_tools(body.get("tools"))
    check_kinds(body.get("input"), far=far)
    validate(_ADAPTER, {**body, "input": typed(body.get("input"))})
    require_input(body)
    _check_forms(body)


def _check_tools(tools: Json) -> None:
    """Refuse in plain words the tools that OpenAI knows and we do not."""
    for index, tool in enumerate(_list(tools)):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind != "function":
            raise InvalidRequest(
                f"there is no tool of the type '{kind[:100]}' here: describe your own as a function",
                param=f"tools.{index}.type",
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
