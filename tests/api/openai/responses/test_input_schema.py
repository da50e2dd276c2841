"""What the input of a response may be."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from api.openai.responses.input_schema import Input, check_kinds, require_input, typed
from infra.errors import InvalidRequest
from infra.types import Json

PICTURE: dict[str, Json] = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}


def test_only_a_far_model_may_see() -> None:
    seen: list[Json] = [{"role": "user", "content": [PICTURE]}]
    check_kinds(seen, far=True)
    with pytest.raises(InvalidRequest, match="reads text only: leave out the image") as refused:
        check_kinds(seen, far=False)
    assert refused.value.param == "input.0.content.0"


def test_a_message_may_come_without_its_type() -> None:
    assert typed([{"role": "user", "content": "hi"}]) == [{"type": "message", "role": "user", "content": "hi"}]
    assert typed("hi") == "hi"


@pytest.mark.parametrize("kind", ["item_reference", "web_search_call", "compaction_trigger"])
@pytest.mark.parametrize("far", [False, True])
def test_an_item_that_nobody_here_knows(kind: str, *, far: bool) -> None:
    with pytest.raises(InvalidRequest, match=kind) as refused:
        check_kinds([{"role": "user", "content": "hi"}, {"type": kind}], far=far)
    assert (refused.value.param, refused.value.code) == ("input.1.type", "unsupported_value")


def test_something_must_be_there_to_read() -> None:
    nothing: list[dict[str, Json]] = [{}, {"input": None}, {"input": []}]
    for body in nothing:
        with pytest.raises(InvalidRequest, match="previous_response_id"):
            require_input(body)
        require_input(body | {"previous_response_id": "resp_1"})
    require_input({"input": "hi"})


@pytest.mark.parametrize(
    ("item", "good"),
    [
        ({"type": "compaction", "encrypted_content": "gAAA", "id": None}, True),
        ({"type": "compaction", "encrypted_content": ""}, False),
        ({"type": "compaction", "encrypted_content": 7}, False),
        ({"type": "compaction"}, False),
        ({"type": "reasoning", "encrypted_content": None}, True),
    ],
)
def test_items(item: Any, *, good: bool) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Input)
    try:
        adapter.validate_python([item])
    except ValueError:
        assert not good
    else:
        assert good
