"""The cut, and the parts as a merge finds them."""

from collections.abc import AsyncIterator

import pytest

from infra.errors import EngineFailed
from infra.types import Json
from tasks.split import parts_of, split
from tasks.types import TaskCall
from workers.transport import Transport


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    made = Transport()
    yield made
    await made.close()


async def test_each_part_s_items(transport: Transport) -> None:
    assert (await split(TaskCall({"sizes": [3, 2, 4]}, transport))).value == [[0, 3], [3, 2], [5, 4]]


async def test_parts_in_the_order_of_the_split(transport: Transport) -> None:
    inputs: dict[str, Json] = {f"part-{number}": {"number": number} for number in range(11, 0, -1)}
    inputs["split"] = [[number, 1] for number in range(11)]
    assert [part["number"] for part in parts_of(TaskCall(inputs, transport))] == list(range(1, 12))


async def test_a_split_that_tells_more(transport: Transport) -> None:
    told: Json = {"ranges": [[0, 1]], "pieces": [None]}
    assert parts_of(TaskCall({"split": told, "part-1": {"a": 1}}, transport)) == [{"a": 1}]


async def test_a_part_without_a_result(transport: Transport) -> None:
    with pytest.raises(EngineFailed, match="part-1 of the request has no result"):
        parts_of(TaskCall({"split": [[0, 1]], "part-1": "text"}, transport))
