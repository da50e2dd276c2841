"""`POST /v1/completions`: what is taken, what is ignored, what is refused.

Honoured: model, prompt (a text, a list of texts, tokens, a list of token lists), stream, stream_options, n, stop, seed,
temperature, top_p, the penalties, logit_bias, max_tokens, logprobs, echo, and llama.cpp's own sampling (`Sampling`).

| field | here | reason |
|---|---|---|
| max_tokens left out | 16 | OpenAI's default; llama.cpp would fill its context |
| prompt left out or null | 400 | there is no end-of-text document to start from |
| best_of | 0, 1 or equal to n: without effect; above n: 400 | ask for n and choose |
| suffix | taken, without effect | chat models have no text in the middle; OpenAI's client sends it |
| echo with logprobs above 0, or with tokens | 400 | the engine does not score or spell out the prompt |
| user, stream_options.include_obfuscation | taken, without effect on the answer | |
| grammar, response_format and all else | 400 unknown | not OpenAI's here |
"""

from typing import Annotated, Final, NotRequired

from pydantic import Field, TypeAdapter, with_config

from api.openai.schemas.shared import (
    STRICT,
    Body,
    Choices,
    ModelField,
    Sampling,
    StreamOptions,
    Text,
    TokenLimit,
    User,
    View,
    check_amount,
    check_known,
    validate,
    wants_usage,
)
from infra.errors import InvalidRequest

MAX_PROMPTS: Final = 128
MAX_PROMPT_TOKENS: Final = 1_000_000
DEFAULT_MAX_TOKENS: Final = 16

Token = Annotated[int, Field(ge=0, le=2**31 - 1)]
Tokens = Annotated[list[Token], Field(min_length=1, max_length=MAX_PROMPT_TOKENS)]
_Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_PROMPTS)]
_TokenLists = Annotated[list[Tokens], Field(min_length=1, max_length=MAX_PROMPTS)]


@with_config(STRICT)
class CompletionsBody(Sampling):
    """The request's body."""

    model: ModelField
    prompt: Text | _Texts | Tokens | _TokenLists
    stream: NotRequired[bool | None]
    stream_options: NotRequired[StreamOptions | None]
    n: NotRequired[Choices | None]
    best_of: NotRequired[Annotated[int, Field(ge=0, le=20)] | None]
    echo: NotRequired[bool | None]
    logprobs: NotRequired[Annotated[int, Field(ge=0, le=5)] | None]
    max_tokens: NotRequired[TokenLimit | None]
    suffix: NotRequired[Text | None]
    user: NotRequired[User | None]


KNOWN: Final = frozenset(CompletionsBody.__annotations__) | frozenset(Sampling.__annotations__)
_ADAPTER: Final = TypeAdapter(CompletionsBody)


def check(body: Body, *, unknown_fields: bool = False) -> View:
    """Check a completions request; `unknown_fields` lets through what is not in `KNOWN` (for far services).

    Raises:
        InvalidRequest: with `param` and one sentence.
    """
    if not unknown_fields:
        check_known(body, KNOWN)
    validate(_ADAPTER, body)
    _check_echo(body)
    wanted, limit, user = body.get("n") or 1, body.get("max_tokens"), body.get("user")
    assert isinstance(wanted, int)  # the adapter has seen to it
    assert limit is None or isinstance(limit, int)
    best_of = body.get("best_of") or 1
    if best_of not in (1, wanted):
        raise InvalidRequest(
            "'best_of' other than 'n' is not supported: ask for 'n' answers and choose", param="best_of"
        )
    prompt = body["prompt"]
    prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    check_amount(wanted * prompts, limit)
    return View(
        model=str(body["model"]),
        stream=body.get("stream") is True,
        include_usage=wants_usage(body),
        choices=wanted * prompts,
        max_tokens=DEFAULT_MAX_TOKENS if limit is None else limit,
        user=user if isinstance(user, str) else None,
    )


def opening(body: Body) -> str:
    """The stable opening for the affinity key: the beginning of the first prompt."""
    prompt = body.get("prompt")
    first = prompt[0] if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else prompt
    return first[:1000] if isinstance(first, str) else str(first[:250]) if isinstance(first, list) else ""


def _check_echo(body: Body) -> None:
    if body.get("echo") is not True:
        return
    if body.get("logprobs"):
        raise InvalidRequest(
            "the prompt of an 'echo' cannot be scored: leave 'logprobs' out or set it to 0", param="logprobs"
        )
    prompt = body["prompt"]
    if isinstance(prompt, list) and not isinstance(prompt[0], str):
        raise InvalidRequest("'echo' repeats a text: give the prompt as text, or leave 'echo' out", param="echo")
