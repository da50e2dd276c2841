"""What a request for a compaction may be."""

from typing import Any

import pytest

from api.openai.responses.compact_schema import check
from infra.errors import InvalidRequest

BODY: dict[str, Any] = {"model": "m", "input": "hi"}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}


@pytest.mark.parametrize(
    "more",
    [
        {"instructions": "Be brief.", "previous_response_id": "resp_1", "input": None},
        {"prompt_cache_key": "k", "prompt_cache_options": {"mode": "implicit"}, "prompt_cache_retention": "24h"},
        {"service_tier": "auto", "image": {"context_compression": "auto"}, "store": False},
        {  # what agents send along, as they do for a response
            "tools": [{"type": "custom", "name": "apply_patch"}, {"type": "web_search"}],
            "parallel_tool_calls": True,
            "reasoning": {"effort": "medium", "summary": "auto"},
            "text": {"verbosity": "low"},
        },
        {"input": [{"type": "compaction", "encrypted_content": "gAAA"}]},
    ],
)
def test_what_is_taken(more: dict[str, Any]) -> None:
    check(BODY | more)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"model": None}, "model"),
        ({"input": [{"type": "compaction"}]}, "input.0.encrypted_content"),
        ({"input": [{"type": "compaction", "encrypted_content": ["a"]}]}, "input.0.encrypted_content"),
        ({"input": [{"type": "compaction", "encrypted_content": ""}]}, "input.0.encrypted_content"),
        ({"input": [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}]}, "input.1.type"),
        ({"input": [{"role": "user", "content": [PICTURE]}]}, "input.0.content.0"),
        ({"stream": True}, "stream"),
        ({"background": True}, "background"),
        ({"max_output_tokens": 5}, "max_output_tokens"),
        ({"instructions": ["a"]}, "instructions"),
    ],
)
def test_what_is_refused_is_named(more: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check(BODY | more)
    assert refused.value.param == param


@pytest.mark.parametrize("far", [False, True])
def test_a_compaction_is_not_streamed(*, far: bool) -> None:
    with pytest.raises(InvalidRequest, match="leave out 'stream'") as refused:
        check(BODY | {"stream": True}, far=far)
    assert refused.value.param == "stream"


def test_a_far_model_may_see_and_know_more() -> None:
    check(BODY | {"input": [{"role": "user", "content": [PICTURE]}], "guided_regex": "a+", "stream": False}, far=True)
