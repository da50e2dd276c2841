"""Counting tokens: what the engine is asked, and what is made of its answer."""

import json

import pytest

from infra.errors import EngineFailed, UpstreamRefused
from infra.types import Json
from tasks.responses.count import count_tokens
from tasks.types import TaskCall
from tests.tasks.test_generate import Far, whole
from tests.tasks.test_generate import far as far

pytestmark = pytest.mark.enable_socket

CHAT: dict[str, Json] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def call(far: Far, *, local: bool = True) -> TaskCall:
    return TaskCall({"request": CHAT}, far.transport, far.local() if local else far.service())


@pytest.mark.parametrize(
    ("local", "path"), [(True, "/v1/chat/completions/input_tokens"), (False, "/v1/responses/input_tokens")]
)
async def test_the_engine_is_asked_where_it_counts(far: Far, *, local: bool, path: str) -> None:
    far.answer = whole(b'{"input_tokens":7,"more":true}')
    result = await count_tokens(call(far, local=local))
    assert json.loads(result.value) == {"object": "response.input_tokens", "input_tokens": 7}  # type: ignore[arg-type]
    assert [asked[0] for asked in far.asked] == [path]


async def test_an_engine_that_does_not_count(far: Far) -> None:
    far.answer = whole(b"{}")
    with pytest.raises(EngineFailed, match="how many tokens"):
        await count_tokens(call(far))


async def test_a_far_service_that_has_no_such_route(far: Far) -> None:
    far.answer = whole(b'{"error":{"message":"no such route"}}', status=404)
    with pytest.raises((UpstreamRefused, EngineFailed)):
        await count_tokens(call(far, local=False))
