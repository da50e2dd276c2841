"""Lists of items that are all in memory: where a page of one begins."""

from infra.errors import NotFound
from infra.types import ItemId, Json


def after_item(items: list[dict[str, Json]], after: ItemId | None, missing: str) -> list[dict[str, Json]]:
    """What follows the item `after`, all if that is None; `missing` begins the sentence that says that it is not there.

    Raises:
        NotFound: there is no such item.
    """
    if after is None:
        return items
    place = next((place for place, item in enumerate(items) if item["id"] == after), None)
    if place is None:
        raise NotFound(f"{missing} {after!r} to list from", param="after")
    return items[place + 1 :]
