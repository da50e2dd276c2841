"""Where a page of items begins."""

import pytest

from api.openai.listing import after_item
from infra.errors import NotFound
from infra.types import ItemId, Json

ITEMS: list[dict[str, Json]] = [{"id": "a"}, {"id": "b"}, {"id": "c"}]


@pytest.mark.parametrize(("after", "rest"), [(None, "abc"), ("a", "bc"), ("c", "")])
def test_it_begins_behind_the_item_that_is_named(after: str | None, rest: str) -> None:
    found = after_item(ITEMS, None if after is None else ItemId(after), "there is no item")
    assert "".join(str(item["id"]) for item in found) == rest


def test_an_item_that_is_not_there() -> None:
    with pytest.raises(NotFound, match="there is no item 'x' to list from") as missing:
        after_item(ITEMS, ItemId("x"), "there is no item")
    assert missing.value.param == "after"
