"""A refusal names the field that the client has sent."""

from infra.errors import UpstreamRefused
from tasks.corrections.refusals import known_refusal
from tasks.corrections.types import CHAT
from tasks.responses.refusals import in_response_words


def test_a_conversation_that_is_too_long() -> None:
    told = known_refusal(CHAT, {"message": "request (900 tokens) exceeds the available context size (512 tokens)"})
    assert told is not None
    said = in_response_words(told)
    assert (said.param, said.code, said.status) == ("input", "context_length_exceeded", 400)
    assert said.message == (
        "This model's maximum context length is 512 tokens. However, your input resulted in 900 tokens. Please reduce "
        "the length of the input."
    )


def test_a_schema_that_cannot_be_followed() -> None:
    said = in_response_words(UpstreamRefused("the JSON schema 'x' is wrong", status=400, param="response_format"))
    assert (said.param, said.message) == ("text.format", "the JSON schema 'x' is wrong")


def test_what_has_the_same_name_in_both() -> None:
    told = UpstreamRefused("'tools' is not right", status=400, param="tools")
    assert in_response_words(told) is told
