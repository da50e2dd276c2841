"""What a request for a response may be."""

from typing import Any

import pytest

from api.openai.responses.schema import check
from infra.errors import InvalidRequest

TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}}
NAMED = {"type": "function", "name": "f"}
BODY: dict[str, Any] = {"model": "m", "input": "hi"}


@pytest.mark.parametrize(
    "more",
    [
        {"input": [{"role": "user", "content": "hi"}]},
        {"input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "hi"}]}]},
        {
            "input": [
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
                    {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                    {"type": "refusal", "refusal": "no"},
                ]},
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
                {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA", "created_by": "somebody"},
            ]
        },
        {"input": None, "previous_response_id": "resp_1"},
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}},
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}}},
        {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
        {"temperature": 0.5, "top_p": 0.9, "seed": 7, "max_output_tokens": 16, "top_k": 3, "stop": ["x"]},
        {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["file_search_call.results"]},
        {"metadata": {"a": "b"}, "store": False, "truncation": "auto", "user": "u", "service_tier": "flex"},
        {"background": False, "conversation": None, "prompt": None},
        {"stream": True, "stream_options": {"include_obfuscation": False}},
    ],
)  # fmt: skip
def test_what_is_taken(more: dict[str, Any]) -> None:
    check(BODY | more)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": 7}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user"}]}, "input.0.content"),
        ({"input": [{"role": "nobody", "content": "hi"}]}, "input.0.role"),
        ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input.0.content.0.type"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input.0.call_id"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input.0.type"),
        ({"input": [{"id": "msg_1"}]}, "input.0.type"),
        ({"tools": [{"type": "custom", "name": "f"}]}, "tools.0.type"),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"truncation": "both"}, "truncation"),
        ({"messages": []}, "messages"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
    ],
)
def test_what_is_refused_is_named(more: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check(BODY | more)
    assert refused.value.param == param


def test_who_wants_a_conversation_managed_is_told_how() -> None:
    with pytest.raises(InvalidRequest, match="POST /v1/responses/compact"):
        check(BODY | {"context_management": [{"type": "compaction", "compact_threshold": 1000}]})


def test_a_deep_schema_is_refused_where_it_stands() -> None:
    deep: dict[str, Any] = {}
    for _ in range(80):
        deep = {"type": "object", "properties": {"a": deep}}
    for more, param in (
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": deep}}}, "text.format.schema"),
        ({"tools": [TOOL | {"parameters": deep}]}, "tools.0.parameters"),
    ):
        with pytest.raises(InvalidRequest, match="nested deeper") as refused:
            check(BODY | more)
        assert refused.value.param == param
