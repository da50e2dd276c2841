"""Refusals of llama.cpp's server that are the client's fault, in OpenAI's words, codes and status.

The server says 500 for some of them (images, tools, long inputs of embeddings), has codes of its own, names no field.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from infra.errors import UpstreamRefused
from infra.types import Json
from tasks.corrections.types import CHAT, EMBEDDINGS

_BAD: Final = 400


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern of the server's message, and what is said instead; `param` empty = the field with the text."""

    pattern: re.Pattern[str]
    sentence: Callable[[re.Match[str], str], str]
    param: str = ""
    code: str = "invalid_request"


def _too_long(match: re.Match[str], param: str) -> str:
    tokens, most = match["tokens"], match["most"]
    return (
        f"This model's maximum context length is {most} tokens. However, your {param} resulted in {tokens} tokens. "
        f"Please reduce the length of the {param}."
    )


_CONTEXT: Final = "context_length_exceeded"
_RULES: Final = (
    _Rule(
        re.compile(r"\((?P<tokens>\d+) tokens\) exceeds the available context size \((?P<most>\d+) tokens\)"),
        _too_long,
        code=_CONTEXT,
    ),
    _Rule(
        re.compile(r"\((?P<tokens>\d+) tokens\) is too large to process.*current batch size: (?P<most>\d+)"),
        _too_long,
        code=_CONTEXT,
    ),
    _Rule(
        re.compile(r"(image|audio|video) input is not supported"),
        lambda match, _: f"this model reads text only: leave the {match[1]} out, or name a model that takes it",
        param="messages",
        code="unsupported_content",
    ),
    _Rule(
        re.compile(r"Failed to parse tool call arguments"),
        lambda _, __: "a tool call in 'messages' has arguments that are no JSON object",
        param="messages",
    ),
    _Rule(
        re.compile(r"Failed to parse tools: (.{1,300})", re.DOTALL),
        lambda match, _: f"these tools cannot be given to the model: {match[1]}",
        param="tools",
    ),
    _Rule(
        re.compile(r"JSON schema error at (.{1,300})"),
        lambda match, _: f"the JSON schema cannot be followed, at {match[1]}",
        param="response_format",
    ),
    _Rule(
        re.compile(r"failed to parse grammar"),
        lambda _, __: "the JSON schema asks for too much to be followed: make it smaller",
        param="response_format",
    ),
    _Rule(
        re.compile(r"Field 'n'.*<= (\d+)"),
        lambda match, _: f"this model gives at most {match[1]} answers at once: ask for n of at most {match[1]}",
        param="n",
    ),
    _Rule(
        re.compile(r"Prompt contains invalid tokens"),
        lambda _, param: f"'{param}' has a token that is not in this model's vocabulary",
    ),
    _Rule(
        re.compile(r"This server does not support (\w+)"),
        lambda match, _: f"this model does not do {match[1]}: name one whose capabilities have it (GET /v1/models)",
        param="model",
        code="unsupported_model",
    ),
    _Rule(
        re.compile(r"Jinja Exception: (.{1,300})"),
        lambda match, _: f"this model's chat template does not take these messages: {match[1]}",
        param="messages",
    ),
)
_FIELD: Final = re.compile(r"Field '(\w+)': (.{1,300})")


def known_refusal(path: str, detail: Mapping[str, Json]) -> UpstreamRefused | None:
    """The client's error for the error object of llama.cpp's server; None for one that is not known here.

    `path` is the engine's, below `/v1`; it tells which field holds the text.
    """
    message = str(detail.get("message") or "")
    text_field = "messages" if path == CHAT else "input" if path == EMBEDDINGS else "prompt"
    for rule in _RULES:
        if match := rule.pattern.search(message):
            param = rule.param or text_field
            return UpstreamRefused(rule.sentence(match, param), status=_BAD, param=param, code=rule.code)
    if match := _FIELD.search(message):
        said = f"'{match[1]}' is not right: {match[2]}"
        return UpstreamRefused(said, status=_BAD, param=match[1], code="invalid_request")
    return None
