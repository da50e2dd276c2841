"""Looking at stored responses."""

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError

from tests.api.openai.responses.conftest import Desk, OpenDesk

THREE: list[Any] = [{"role": "user", "content": text, "id": f"msg_{text}"} for text in ("a", "b", "c")]


async def listed(desk: Desk, **query: Any) -> tuple[list[str], bool]:
    response = await desk.client.responses.create(model="tiny", input=THREE)
    page = await desk.client.responses.input_items.list(response.id, **query)
    assert page.has_more is not None
    return [str(item.id) for item in page.data], page.has_more


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, (["msg_c", "msg_b", "msg_a"], False)),
        ({"order": "asc"}, (["msg_a", "msg_b", "msg_c"], False)),
        ({"order": "asc", "limit": 2}, (["msg_a", "msg_b"], True)),
        ({"order": "asc", "after": "msg_b"}, (["msg_c"], False)),
        ({"after": "msg_a"}, ([], False)),
    ],
)
async def test_a_list_of_the_input(open_desk: OpenDesk, query: dict[str, Any], expected: object) -> None:
    assert await listed(await open_desk(), **query) == expected


async def test_a_list_that_cannot_be(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    with pytest.raises(NotFoundError) as refused:
        await listed(desk, after="nobody")
    assert refused.value.param == "after"
    with pytest.raises(BadRequestError) as wrong:
        await listed(desk, limit=0)
    assert wrong.value.param == "limit"


async def test_nothing_is_shown_without_a_key(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    response = await desk.client.responses.create(model="tiny", input="hi")
    for path in (response.id, f"{response.id}/input_items"):
        assert (await desk.front.get(f"/v1/responses/{path}", scope=None))[0] == 401
    async with desk.front.session.delete(f"{desk.front.url}/v1/responses/{response.id}") as answer:
        assert answer.status == 401


async def test_a_deletion_says_what_it_deleted(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    response = await desk.client.responses.create(model="tiny", input="hi")
    address = f"{desk.front.url}/v1/responses/{response.id}"
    async with desk.front.session.delete(address, headers=desk.front.headers()) as answer:
        assert await answer.json() == {"id": response.id, "object": "response", "deleted": True}


async def test_responses_are_not_listed_and_compactions_not_shown(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    for path in ("/v1/responses", "/v1/responses/compact"):
        assert (await desk.front.get(path))[0] in (404, 405)
