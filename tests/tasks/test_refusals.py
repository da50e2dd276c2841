"""What an engine's refusal becomes: whose fault it is, and what may be tried elsewhere."""

import json

import pytest

from infra.errors import CoderAIError, EngineFailed, ModelLoading, UpstreamRefused
from tasks.refusals import refusal


def body(**error: object) -> bytes:
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize(
    ("status", "text", "kind", "words", "code", "param"),
    [
        (400, body(message="bad top_k", param="top_k", code="x"), UpstreamRefused, "bad top_k", "x", "top_k"),
        (400, body(message="bad", param=["a"], code=400), UpstreamRefused, "bad", "invalid_request", None),
        (404, b'{"detail": "Not Found"}', EngineFailed, "HTTP 404: Not Found", "engine_failed", None),
        (422, b'{"message": "flat"}', UpstreamRefused, "flat", "invalid_request", None),
        (400, b'{"error": "just text"}', UpstreamRefused, "just text", "invalid_request", None),
        (400, b'{"error": [1]}', UpstreamRefused, "HTTP 400", "invalid_request", None),
        (400, b"[]", UpstreamRefused, "HTTP 400", "invalid_request", None),
        (400, b"", UpstreamRefused, "HTTP 400", "invalid_request", None),
        (400, b"  plain \xff text ", UpstreamRefused, "plain \ufffd text", "invalid_request", None),
        (503, body(message="Loading model", type="unavailable_error"), ModelLoading, "Loading model", None, None),
        (503, body(message="overloaded"), EngineFailed, "HTTP 503: overloaded", None, None),
        (500, b"<html>", EngineFailed, "cpu/m refused with HTTP 500: <html>", None, None),
        (401, body(message="Invalid API Key"), EngineFailed, "HTTP 401", None, None),
        (402, body(message="Insufficient Balance"), EngineFailed, "HTTP 402: Insufficient Balance", None, None),
        (407, b"", EngineFailed, "HTTP 407", None, None),
        (408, b"", EngineFailed, "HTTP 408", None, None),
        (403, body(message="no"), EngineFailed, "HTTP 403", None, None),
        (429, body(message="slow down"), EngineFailed, "HTTP 429", None, None),
        (302, b"", EngineFailed, "HTTP 302", None, None),
    ],
)
def test_refusals(
    status: int, text: bytes, kind: type[CoderAIError], words: str, code: str | None, param: str | None
) -> None:
    error = refusal("cpu/m", "/chat/completions", status, text, ours=False)
    assert type(error) is kind
    assert words in error.message
    assert error.param == param
    if code is not None:
        assert error.code == code
    if isinstance(error, UpstreamRefused):
        assert error.status == status
    if isinstance(error, ModelLoading):
        assert error.retry_after_s


def test_a_long_message_is_cut() -> None:
    assert len(refusal("cpu/m", "/embeddings", 400, body(message="x" * 100_000), ours=True).message) == 2000
    assert len(refusal("cpu/m", "/embeddings", 400, b"x" * 100_000, ours=True).message) == 200


def test_what_is_said_of_a_key_is_not_repeated() -> None:
    error = refusal("service:far/m", "/embeddings", 401, body(message="Incorrect API key: sk-far"), ours=False)
    assert "sk-far" not in error.message


def test_words_are_short() -> None:
    error = refusal(
        "service:far/m", "/embeddings", 400, body(message="x", param="p" * 5000, code="c" * 5000), ours=False
    )
    assert (error.param, error.code) == ("p" * 200, "c" * 200)


def test_only_our_own_llama_is_read_by_what_it_is_known_to_say() -> None:
    text = body(
        message="request (9000 tokens) exceeds the available context size (4096 tokens)",
        type="exceed_context_size_error",
    )
    ours = refusal("cpu/m", "/chat/completions", 400, text, ours=True)
    far = refusal("service:box/m", "/chat/completions", 400, text, ours=False)
    assert (ours.code, ours.param) == ("context_length_exceeded", "messages")
    assert (far.code, far.param) == ("invalid_request", None)
