"""`POST /v1/chat/completions`: what is taken, what is ignored, what is refused.

Honoured: messages, model, stream, stream_options, n, stop, seed, temperature, top_p, the penalties, logit_bias,
logprobs, top_logprobs, max_tokens, max_completion_tokens, response_format, tools, tool_choice, functions,
function_call, llama.cpp's own sampling (`Sampling`), and, by models that know them, chat_template_kwargs,
enable_thinking, reasoning_effort.

| field | here | reason |
|---|---|---|
| parallel_tool_calls | honoured where the model calls by itself | a forced call is always one call |
| n above the model's `max_instances` | refused by the engine | all answers are decoded side by side |
| max_tokens: 0 | an empty answer | OpenAI's client sends it |
| modalities with "audio" | 400 | the client would wait for sound |
| audio without that modality | no effect | it only describes the sound |
| custom tools; a choice that names no tool given | 400 | the model could not call them |
| functions together with tools | the tools hold | OpenAI's client may send both; `functions` is the older form |
| image, audio and file parts | taken; a model that reads only text answers 400 | a far service may see |
| user | no effect on the answer | keeps a conversation on one engine |
| store | true: the answer is stored, and found again by GET | a job's answer is kept with its run instead |
| metadata | stored with it | labels that it is found by |
| moderation, prediction, prompt_cache_*, service_tier, safety_identifier | no effect | hints to a service |
| verbosity, web_search_options, stream_options.include_obfuscation | no effect | hints to a service |
| grammar | 400 | see `Sampling` |
| cache_prompt, id_slot, lora, n_predict, all else | 400 unknown | reach into other requests, or not OpenAI's |
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict

from api.openai.schemas.forms import check_form
from api.openai.schemas.messages import Function, FunctionChoice, Messages, ToolChoice, Tools
from api.openai.schemas.shared import (
    STRICT,
    Body,
    Choices,
    Metadata,
    ModelField,
    Sampling,
    StreamOptions,
    TokenLimit,
    User,
    View,
    check_amount,
    check_known,
    text_of,
    validate,
    wants_usage,
)
from infra.errors import InvalidRequest
from infra.types import Json

FormName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
Hint = dict[str, object]
ShortText = Annotated[str, StringConstraints(max_length=512)]


class _Form(TypedDict):
    name: FormName
    description: NotRequired[str | None]
    schema: NotRequired[dict[str, object]]
    strict: NotRequired[bool | None]


class _FormatText(TypedDict):
    type: Literal["text"]


class _FormatJson(TypedDict):
    type: Literal["json_object"]


class _FormatSchema(TypedDict):
    type: Literal["json_schema"]
    json_schema: _Form


_Format = Annotated[_FormatText | _FormatJson | _FormatSchema, Field(discriminator="type")]


@with_config(STRICT)
class ChatBody(Sampling):
    """The request's body."""

    model: ModelField
    messages: Messages
    stream: NotRequired[bool | None]
    stream_options: NotRequired[StreamOptions | None]
    n: NotRequired[Choices | None]
    max_tokens: NotRequired[TokenLimit | None]
    max_completion_tokens: NotRequired[TokenLimit | None]
    logprobs: NotRequired[bool | None]
    top_logprobs: NotRequired[Annotated[int, Field(ge=0, le=20)] | None]
    response_format: NotRequired[_Format | None]
    tools: NotRequired[Tools | None]
    tool_choice: NotRequired[ToolChoice | None]
    parallel_tool_calls: NotRequired[bool | None]
    functions: NotRequired[Annotated[list[Function], Field(max_length=128)] | None]
    function_call: NotRequired[FunctionChoice | None]
    reasoning_effort: NotRequired[Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None]
    enable_thinking: NotRequired[bool | None]
    chat_template_kwargs: NotRequired[
        Annotated[dict[FormName, str | int | float | bool | None], Field(max_length=16)] | None
    ]
    user: NotRequired[User | None]
    safety_identifier: NotRequired[User | None]
    modalities: NotRequired[list[Literal["text", "audio"]] | None]
    audio: NotRequired[Hint | None]
    metadata: NotRequired[Metadata | None]
    moderation: NotRequired[Hint | None]
    prediction: NotRequired[Hint | None]
    prompt_cache_key: NotRequired[User | None]
    prompt_cache_options: NotRequired[Hint | None]
    prompt_cache_retention: NotRequired[ShortText | None]
    service_tier: NotRequired[ShortText | None]
    store: NotRequired[bool | None]
    verbosity: NotRequired[Literal["low", "medium", "high"] | None]
    web_search_options: NotRequired[Hint | None]


KNOWN: Final = frozenset(ChatBody.__annotations__) | frozenset(Sampling.__annotations__)
_ADAPTER: Final = TypeAdapter(ChatBody)


def check(body: Body, *, unknown_fields: bool = False) -> View:
    """Check a chat request; `unknown_fields` lets through what is not in `KNOWN` (for far services).

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    if not unknown_fields:
        check_known(body, KNOWN)
    validate(_ADAPTER, body)
    if body.keys() & _RARE:
        _check_rare(body)
    limit = body.get("max_completion_tokens")
    if limit is None:
        limit = body.get("max_tokens")
    choices, user = body.get("n") or 1, body.get("user")
    assert isinstance(choices, int)  # the adapter has seen to it
    assert limit is None or isinstance(limit, int)
    check_amount(choices, limit)
    return View(
        model=str(body["model"]),
        stream=body.get("stream") is True,
        include_usage=wants_usage(body),
        choices=choices,
        max_tokens=limit,
        user=user if isinstance(user, str) else None,
    )


def opening(body: Body) -> str:
    """The stable opening of a conversation: its first system and its first user text.

    All turns of one conversation share it, so its key leads them to the engine that has their prefix in its cache.
    """
    system: str | None = None
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict):
            continue
        role = message.get("role")
        if role == "user":
            return f"{system or ''}\n{text_of(message.get('content'))}"
        if system is None and role in ("system", "developer"):
            system = text_of(message.get("content"))
    return f"{system or ''}\n"


_RARE: Final = frozenset(
    {"modalities", "top_logprobs", "response_format", "tools", "tool_choice", "functions", "function_call"}
)


def _check_rare(body: Body) -> None:
    modalities = body.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities:
        raise InvalidRequest("chat answers are text here: ask for the modality 'text' only", param="modalities")
    if body.get("top_logprobs") is not None and body.get("logprobs") is not True:
        raise InvalidRequest("'top_logprobs' needs 'logprobs' to be true", param="top_logprobs")
    form = body.get("response_format")
    if isinstance(form, dict) and isinstance(inner := form.get("json_schema"), dict):
        check_form(inner.get("schema"), "response_format.json_schema.schema")
    names = _check_tools(body)
    _check_choice(body, names)


def _check_tools(body: Body) -> set[str]:
    """The names of all tools and functions, after a look at their parameters."""
    names: set[str] = set()
    for field, functions in (("tools", body.get("tools")), ("functions", body.get("functions"))):
        for index, tool in enumerate(functions if isinstance(functions, list) else ()):
            assert isinstance(tool, dict)  # the adapter has seen to it
            where = f"{field}.{index}"
            if tool.get("type") == "custom":
                raise InvalidRequest(
                    "custom tools are not supported: describe the tool as a function", param=f"{where}.type"
                )
            function = tool["function"] if field == "tools" else tool
            where = f"{where}.function" if field == "tools" else where
            assert isinstance(function, dict)
            check_form(function.get("parameters"), f"{where}.parameters")
            names.add(str(function["name"]))
    return names


def _check_choice(body: Body, names: set[str]) -> None:
    """Refuse a choice of tools that are not there."""
    for field in ("tool_choice", "function_call"):
        choice = body.get(field)
        if choice in (None, "none", "auto"):
            continue
        if not names:
            raise InvalidRequest(f"'{field}' needs tools to choose from: give 'tools' too", param=field)
        for name in _chosen(choice):
            if name not in names:
                raise InvalidRequest(f"'{field}' names the tool '{name}', which is not among 'tools'", param=field)


def _chosen(choice: Json) -> list[str]:
    """The names that a choice mentions."""
    if not isinstance(choice, Mapping):
        return []
    if choice.get("type") == "allowed_tools":
        allowed = choice["allowed_tools"]
        tools = allowed["tools"] if isinstance(allowed, dict) else []
        return [_name_of(tool) for tool in tools] if isinstance(tools, list) else []
    return [_name_of(choice)]


def _name_of(tool: Json) -> str:
    """The name in `{"type": "function", "function": {"name": …}}`, or in the older `{"name": …}`."""
    if not isinstance(tool, Mapping):
        return ""
    inner = tool.get("function") or tool.get("custom") or tool
    return str(inner.get("name")) if isinstance(inner, Mapping) else ""
