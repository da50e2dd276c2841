"""What a request goes on from, and the way of its answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.asgi import EventStream
from api.openai.responses import store
from api.openai.responses.memory import MEMORY
from api.openai.responses.stream import ResponseStream
from infra.database import Database, open_database
from infra.errors import InvalidRequest, NotFound
from infra.migrate import migrate
from infra.tokens import Key
from infra.types import KeyName, ResponseId
from tests.fakes import make_entry

ANN = Key(KeyName("ann"), "user")
BODY: dict[str, Any] = {"model": "m", "input": "more"}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path / 'coderai.db'}")
    migrate(opened)
    yield opened
    opened.close()


async def test_a_request_of_its_own_is_as_it_came(database: Database) -> None:
    assert await MEMORY.recall(database, ANN, BODY, make_entry()) is BODY


async def test_what_is_kept_is_recalled_before_the_new_input(database: Database) -> None:
    delivery = MEMORY.deliver(database, ANN, BODY | {"input": "hi"})
    assert delivery.keep is not None
    await delivery.keep(orjson.dumps({"id": "resp_1", "output": [{"type": "message", "role": "assistant"}]}))
    asked = BODY | {"previous_response_id": "resp_1"}
    known = await MEMORY.recall(database, ANN, asked, make_entry())
    items: Any = known["input"]
    assert [(item["role"], item.get("content")) for item in items] == [
        ("user", [{"type": "input_text", "text": "hi"}]),
        ("assistant", None),
        ("user", "more"),
    ]
    with pytest.raises(NotFound):
        await MEMORY.recall(database, Key(KeyName("bob"), "user"), asked, make_entry())


async def test_a_wrong_request_is_told_before_anything_is_looked_for(database: Database) -> None:
    wrong = BODY | {"previous_response_id": "resp_1", "input": [{"role": "user", "content": 7}]}
    with pytest.raises(InvalidRequest) as refused:
        await MEMORY.recall(database, ANN, wrong, make_entry())
    assert refused.value.param == "input.0.content"


def test_what_is_not_to_be_stored(database: Database) -> None:
    delivery = MEMORY.deliver(database, ANN, BODY | {"store": False})
    assert (delivery.stream, delivery.keep) == (ResponseStream, None)
    assert issubclass(ResponseStream, EventStream)
    with pytest.raises(NotFound):
        store.get(database, store.Whose.of(ANN), ResponseId("resp_1"))
