"""What a chat request may hold."""

from typing import Final

import pytest

from api.openai.schemas import chat
from api.openai.schemas.shared import Body, View
from infra.errors import InvalidRequest
from infra.types import Json

MESSAGES: Final[list[Json]] = [{"role": "user", "content": "Hello"}]
TOOL: Final[Json] = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def body(**fields: Json) -> Body:
    return {"model": "m", "messages": MESSAGES, **fields}


def refused(request: Body) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        chat.check(request)
    return caught.value


EVERY_FIELD: Final[Body] = {
    "messages": [{"content": "string", "role": "developer", "name": "name"}],
    "model": "gpt-6-astra",
    "audio": {"format": "wav", "voice": "alloy"},
    "frequency_penalty": -2,
    "function_call": "none",
    "logit_bias": {"foo": 0},
    "logprobs": True,
    "max_completion_tokens": 0,
    "max_tokens": 0,
    "metadata": {"foo": "string"},
    "modalities": ["text"],
    "moderation": {"model": "model", "policy": {"input": {"mode": "score"}, "output": {"mode": "score"}}},
    "n": 1,
    "parallel_tool_calls": True,
    "prediction": {"content": "string", "type": "content"},
    "presence_penalty": -2,
    "prompt_cache_key": "prompt-cache-key-1234",
    "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
    "prompt_cache_retention": "in_memory",
    "reasoning_effort": "none",
    "response_format": {"type": "text"},
    "safety_identifier": "safety-identifier-1234",
    "seed": -9007199254740991,
    "service_tier": "auto",
    "stop": "\n",
    "store": True,
    "stream": False,
    "stream_options": {"include_obfuscation": True, "include_usage": True},
    "temperature": 1,
    "tool_choice": "none",
    "tools": [
        {
            "function": {"name": "name", "description": "d", "parameters": {"foo": "bar"}, "strict": True},
            "type": "function",
        }
    ],
    "top_logprobs": 0,
    "top_p": 1,
    "user": "user-1234",
    "verbosity": "low",
    "web_search_options": {
        "search_context_size": "low",
        "user_location": {"approximate": {"city": "city"}, "type": "approximate"},
    },
}


def test_every_field_of_the_typed_client_is_taken() -> None:
    assert chat.check(EVERY_FIELD) == View("gpt-6-astra", include_usage=True, max_tokens=0, user="user-1234")


def test_functions_of_the_typed_client_are_taken() -> None:
    functions: list[Json] = [{"name": "name", "description": "d", "parameters": {"foo": "bar"}}]
    chat.check(body(functions=functions, function_call="none"))
    chat.check(body(functions=functions, function_call="none", tools=[TOOL]))


def test_null_is_the_same_as_nothing() -> None:
    optional = chat.KNOWN - {"model", "messages"}
    assert chat.check(body(**dict.fromkeys(optional))) == View("m")


def test_sampling_of_llama_cpp_is_taken() -> None:
    chat.check(
        body(
            top_k=40,
            min_p=0.05,
            repeat_penalty=1.1,
            repeat_last_n=64,
            typical_p=0.9,
            mirostat=2,
            mirostat_tau=5.0,
            dry_multiplier=0.8,
            dry_sequence_breakers=["\n"],
            xtc_probability=0.1,
            chat_template_kwargs={"enable_thinking": False},
            enable_thinking=False,
        )
    )


def test_the_view_says_what_the_front_needs() -> None:
    view = chat.check(
        body(stream=True, stream_options={"include_usage": True}, n=3, max_tokens=9, max_completion_tokens=7, user="u")
    )
    assert view == View("m", stream=True, include_usage=True, choices=3, max_tokens=7, user="u")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": "2"}, "n"),
        ({"n": 100, "max_tokens": 100_000}, "n"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", 5]}, "stop.1"),
        ({"seed": 2**63}, "seed"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": {str(token): 1 for token in range(2000)}}, "logit_bias"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": "true"}}, "stream_options.include_usage"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"user": 5}, "user"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "response_format.json_schema.name",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools.0.type"),
        ({"tools": [TOOL] * 129}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "jump"}}}, "tool_choice"),
        (
            {
                "tools": [TOOL],
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "jump"}}]},
                },
            },
            "tool_choice",
        ),
        ({"functions": [{"name": "look"}], "function_call": {"name": "jump"}}, "function_call"),
        ({"chat_template_kwargs": {"a": []}}, "chat_template_kwargs.a"),
    ],
)
def test_what_is_wrong_is_named(fields: Body, param: str) -> None:
    error = refused(body(**fields))
    assert error.param == param
    assert error.code == "invalid_request"
    assert "\n" not in error.message


def test_required_fields() -> None:
    assert refused({"messages": MESSAGES}).message == "'model' is required"
    assert refused({"model": "m"}).message == "'messages' is required"


@pytest.mark.parametrize("name", ["cache_prompt", "id_slot", "lora", "n_predict", "grammar", "nonsense"])
def test_unknown_fields_are_refused(name: str) -> None:
    error = refused(body(**{name: 1}))
    assert error.param == name
    assert error.message.startswith(f"Unrecognized request argument supplied: {name}")


def test_unknown_fields_come_with_near_names() -> None:
    assert "did you mean max_tokens" in refused(body(max_token=5)).message
    assert "did you mean" not in refused(body(input="Hello")).message


def test_unknown_fields_pass_for_far_services() -> None:
    assert chat.check(body(guided_regex="a+"), unknown_fields=True).model == "m"


def test_a_named_tool_and_allowed_tools_are_taken() -> None:
    chosen: Json = {"type": "function", "function": {"name": "look"}}
    chat.check(body(tools=[TOOL], tool_choice=chosen))
    allowed: Json = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [chosen]}}
    chat.check(body(tools=[TOOL], tool_choice=allowed))


def test_the_opening_is_the_same_for_all_turns() -> None:
    start: list[Json] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    later: list[Json] = [*start, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Bye"}]
    assert chat.opening({"messages": start}) == chat.opening({"messages": later}) == "Be kind.\nHello"


def test_the_opening_reads_parts_and_survives_anything() -> None:
    parts: Json = [{"type": "text", "text": "He"}, {"type": "image_url"}, {"type": "text", "text": "llo"}]
    assert chat.opening({"messages": [{"role": "user", "content": parts}]}) == "\nHello"
    assert chat.opening({}) == chat.opening({"messages": [5, {"role": "user"}]}) == "\n"
