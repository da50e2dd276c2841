"""Errors as answers: the body and the headers."""

import math

import orjson

from infra import errors
from infra.error_object import error_object

Headers = list[tuple[bytes, bytes]]


def error_body(error: BaseException) -> bytes:
    """OpenAI's error object. What is not ours is told to nobody but the log."""
    return orjson.dumps({"error": error_object(error)})


def error_headers(error: BaseException) -> Headers:
    """`Retry-After` where coming back later helps, `WWW-Authenticate` where a key does."""
    headers: Headers = [(b"content-type", b"application/json")]
    if isinstance(error, errors.CoderAIError) and error.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after_s))).encode()))
    if isinstance(error, errors.NotAuthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    return headers
