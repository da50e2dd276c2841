"""Refusals of the real server in OpenAI's words."""

import orjson
import pytest

from infra.errors import UpstreamRefused
from tasks.corrections.refusals import known_refusal
from tasks.corrections.types import CHAT, COMPLETIONS, EMBEDDINGS, Body, inner
from tests.tasks.corrections.live import SLOTS, Live, user


def refused(live: Live, path: str, body: Body) -> tuple[int, UpstreamRefused]:
    status, answer = live.raw(f"/v1{path}", body)
    assert status >= 400
    error = known_refusal(path, inner(orjson.loads(answer), "error"))
    assert error is not None, answer
    assert error.status == 400
    return status, error


def test_a_chat_too_long(tiny: Live) -> None:
    _, error = refused(tiny, CHAT, {"messages": user("word " * 3000)})
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
    assert error.message.startswith(
        "This model's maximum context length is 2048 tokens. However, your messages resulted"
    )


def test_a_prompt_too_long(tiny: Live) -> None:
    _, error = refused(tiny, COMPLETIONS, {"prompt": "word " * 3000})
    assert (error.code, error.param) == ("context_length_exceeded", "prompt")


def test_an_input_too_long(embedder: Live) -> None:
    _, error = refused(embedder, EMBEDDINGS, {"input": "word " * 3000})
    assert (error.code, error.param) == ("context_length_exceeded", "input")
    assert "512 tokens" in error.message


def test_an_image_for_a_model_that_reads() -> None:
    said = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
    error = known_refusal(CHAT, {"code": 500, "message": said, "type": "server_error"})
    assert error is not None
    assert (error.status, error.code, error.param) == (400, "unsupported_content", "messages")


def test_an_image_is_no_fault_of_the_server(tiny: Live) -> None:
    image: Body = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    status, error = refused(tiny, CHAT, {"messages": [{"role": "user", "content": [image]}]})
    assert status == 500
    assert error.code == "unsupported_content"


def test_more_answers_than_slots(tiny: Live) -> None:
    _, error = refused(tiny, CHAT, {"messages": user("hi"), "n": SLOTS + 1})
    assert error.param == "n"
    assert f"at most {SLOTS} answers at once" in error.message


@pytest.mark.parametrize("schema", [{"$ref": "#/$defs/none"}, {"type": "smell"}])
def test_a_schema_that_cannot_be_followed(tiny: Live, schema: Body) -> None:
    form: Body = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    _, error = refused(tiny, CHAT, {"messages": user("hi"), "response_format": form})
    assert error.param == "response_format"


def test_a_token_that_does_not_exist(tiny: Live) -> None:
    _, error = refused(tiny, COMPLETIONS, {"prompt": [99_999_999]})
    assert error.param == "prompt"


def test_a_capability_that_is_not_there(tiny: Live) -> None:
    status, error = refused(tiny, EMBEDDINGS, {"input": "a"})
    assert status == 501
    assert (error.code, error.param) == ("unsupported_model", "model")


def test_other_fields_are_named(tiny: Live) -> None:
    _, error = refused(tiny, CHAT, {"messages": user("hi"), "repeat_last_n": -2})
    assert error.param == "repeat_last_n"


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ("Failed to parse tools: Unsupported tool type", "tools"),
        ("Failed to parse tool call arguments as JSON: [json.exception.parse_error.101]", "messages"),
        ("…failed: \nError: Jinja Exception: Conversation roles must alternate", "messages"),
        ("Failed to initialize samplers: failed to parse grammar", "response_format"),
    ],
)
def test_recorded_refusals(said: str, param: str) -> None:
    error = known_refusal(CHAT, {"message": said})
    assert error is not None
    assert error.param == param


def test_what_is_not_known_is_left_to_others() -> None:
    assert known_refusal(CHAT, {"message": "Loading model"}) is None
    assert known_refusal(CHAT, {}) is None
