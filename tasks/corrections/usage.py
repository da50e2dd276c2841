"""Tokens of an answer, found without parsing the answer.

A whole answer carries `usage`. Of a stream only the last few kilobytes are looked at: llama.cpp's server ends every
stream with a chunk that has `timings` (`cache_n` + `prompt_n` tokens of prompt, `predicted_n` tokens of answer), asked
or not, so nothing needs to be added to the request. A far service sends usage only if asked: `usage.py`'s part in the
table asks for it and takes the extra chunk out again (`HiddenUsage`) if the client did not want it.

A key is searched for with its quotes. Inside a text they would be escaped, so a text never matches.
"""

import re
from typing import Final

import orjson

from infra.types import Json
from tasks.corrections.types import Body, number
from tasks.types import Usage

_OBJECT: Final = rb"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})"
"""A colon, and an object that holds none but flat ones."""
_USAGE: Final = re.compile(rb'"usage"' + _OBJECT)
_TIMINGS: Final = re.compile(rb'"timings"' + _OBJECT)


def usage_in(tail: bytes) -> Usage | None:
    """The usage in an answer, or in the end of a stream; None if it has none.

    `tail` may begin anywhere. The last `usage` that is an object counts, else the last `timings`.
    """
    found = _last_object(tail, _USAGE)
    if found is not None and "prompt_tokens" in found:
        return usage_of(found)
    timings = _last_object(tail, _TIMINGS)
    return None if timings is None else usage_of_timings(timings)


def usage_of(usage: Body) -> Usage:
    """Read OpenAI's usage object."""
    details = usage.get("prompt_tokens_details")
    return Usage(
        number(usage.get("prompt_tokens")),
        number(usage.get("completion_tokens")),
        number(details.get("cached_tokens")) if isinstance(details, dict) else 0,
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


def _last_object(text: bytes, key: re.Pattern[bytes]) -> Body | None:
    """The last object that follows the key; None if there is none, or only half of one."""
    found = key.findall(text)
    try:
        value: Json = orjson.loads(found[-1]) if found else None
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
