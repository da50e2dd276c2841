"""Tokens of an answer, found without parsing the answer.

A whole answer carries `usage`. Of a stream only the last few kilobytes are looked at: llama.cpp's server ends every
stream with a chunk that has `timings` (`cache_n` + `prompt_n` tokens of prompt, `predicted_n` tokens of answer), asked
or not, so nothing needs to be added to the request. A far service sends usage only if asked: `usage.py`'s part in the
table asks for it and takes the extra chunk out again (`HiddenUsage`) if the client did not want it.

A key is searched for with its quotes. Inside a text they would be escaped, so a text never matches.
"""

import json
from typing import Final

from infra.types import Json
from tasks.corrections.types import Body, inner, number
from tasks.types import Usage

_DECODER: Final = json.JSONDecoder()
_LONGEST: Final = 4096
"""Longest usage or timings object in bytes."""


def usage_in(tail: bytes) -> Usage | None:
    """The usage in an answer, or in the end of a stream; None if it has none.

    `tail` may begin anywhere. The last `usage` that is an object counts, else the last `timings`.
    """
    found = _last_object(tail, b'"usage"')
    if found is not None and "prompt_tokens" in found:
        return usage_of(found)
    timings = _last_object(tail, b'"timings"')
    return None if timings is None else usage_of_timings(timings)


def usage_of(usage: Body) -> Usage:
    """Read OpenAI's usage object."""
    return Usage(
        prompt_tokens=number(usage.get("prompt_tokens")),
        completion_tokens=number(usage.get("completion_tokens")),
        cached_tokens=number(inner(usage, "prompt_tokens_details").get("cached_tokens")),
    )


def usage_of_timings(timings: Body) -> Usage:
    """Read llama.cpp's timings, of one choice."""
    cached = number(timings.get("cache_n"))
    return Usage(
        prompt_tokens=cached + number(timings.get("prompt_n")),
        completion_tokens=number(timings.get("predicted_n")),
        cached_tokens=cached,
    )


def usage_object(usage: Usage) -> Body:
    """OpenAI's usage object of a chat or a completion."""
    return {
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _last_object(text: bytes, key: bytes) -> Body | None:
    end = len(text)
    while (at := text.rfind(key, 0, end)) >= 0:
        end = at
        value = _object_at(text, at + len(key))
        if value is not None:
            return value
    return None


def _object_at(text: bytes, at: int) -> Body | None:
    """The object that follows a key's colon; None if something else does, or half an object."""
    rest = text[at : at + _LONGEST].decode(errors="replace").lstrip()
    if not rest.startswith(":"):
        return None
    rest = rest[1:].lstrip()
    if not rest.startswith("{"):
        return None
    try:
        value: Json = _DECODER.raw_decode(rest)[0]
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
