"""Errors as answers: OpenAI's object, and the headers that say what to do."""

import json

import pytest

from api.errors import error_body, error_headers
from infra import errors
from infra.error_object import error_object


def test_the_body_is_openai_s() -> None:
    error = errors.InvalidRequest("no such voice", param="voice")
    assert json.loads(error_body(error)) == {"error": error_object(error)}


@pytest.mark.parametrize(("seconds", "header"), [(0.0, b"1"), (0.2, b"1"), (1.0, b"1"), (1.2, b"2"), (59.01, b"60")])
def test_retry_after_is_whole_seconds_and_never_too_early(seconds: float, header: bytes) -> None:
    headers = dict(error_headers(errors.QueueFull("full", retry_after_s=seconds)))
    assert headers[b"retry-after"] == header


def test_headers_of_errors() -> None:
    assert dict(error_headers(errors.NotAuthenticated("no key"))) == {
        b"content-type": b"application/json",
        b"www-authenticate": b"Bearer",
    }
    assert dict(error_headers(KeyError())) == {b"content-type": b"application/json"}
