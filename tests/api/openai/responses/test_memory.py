"""What a request goes on from, and the way of its answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.asgi import EventStream
from api.openai.endpoint import Memory
from api.openai.responses import store
from api.openai.responses.compaction import TELLS
from api.openai.responses.memory import COMPACTED, MEMORY, RECALLED
from api.openai.responses.stream import ResponseStream
from api.run import Order
from api.seals import Seals
from flows.responses import plan_responses
from infra.database import Database, open_database
from infra.errors import InvalidRequest, NotFound
from infra.migrate import migrate
from infra.tokens import Key
from infra.types import Json, KeyName, ResponseId, new_run_id
from tasks.types import TaskResult
from tests.fakes import make_entry

ANN = Key(KeyName("ann"), "user")
BOSS = Key(KeyName("boss"), "admin")
BODY: dict[str, Any] = {"model": "m", "input": "more"}


@dataclass
class Held:
    """What requests refer to."""

    database: Database
    seals: Seals


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Held]:
    opened = open_database(f"sqlite:///{tmp_path / 'coderai.db'}")
    migrate(opened)
    yield Held(opened, Seals(tmp_path / "session.key"))
    opened.close()


async def answered(stores: Held, request: dict[str, Any], *output: Json) -> None:
    """Store the response `resp_1` of this request of Ann's."""
    keep = MEMORY.deliver(stores, ANN, request).keep
    assert keep is not None
    order = Order(new_run_id(), plan_responses({}, make_entry(), None), make_entry(), ANN, b"", stream=False)
    result = TaskResult(orjson.dumps({"id": "resp_1", "output": output}))
    assert await keep(order, result) is result


async def test_a_request_of_its_own_is_as_it_came(stores: Held) -> None:
    assert await MEMORY.recall(stores, ANN, BODY, make_entry()) is BODY


async def test_what_is_kept_is_recalled_before_the_new_input(stores: Held) -> None:
    await answered(stores, BODY | {"input": "hi"}, {"type": "message", "role": "assistant"})
    asked = BODY | {"previous_response_id": "resp_1"}
    known = await MEMORY.recall(stores, ANN, asked, make_entry())
    items: Any = known["input"]
    assert [(item["role"], item.get("content")) for item in items] == [
        ("user", [{"type": "input_text", "text": "hi"}]),
        ("assistant", None),
        ("user", "more"),
    ]
    with pytest.raises(NotFound):
        await MEMORY.recall(stores, Key(KeyName("bob"), "user"), asked, make_entry())


async def test_a_wrong_request_is_told_before_anything_is_looked_for(stores: Held) -> None:
    wrong = BODY | {"previous_response_id": "resp_1", "input": [{"role": "user", "content": 7}]}
    with pytest.raises(InvalidRequest) as refused:
        await MEMORY.recall(stores, ANN, wrong, make_entry())
    assert refused.value.param == "input.0.content"


def test_what_is_not_to_be_stored(stores: Held) -> None:
    delivery = MEMORY.deliver(stores, ANN, BODY | {"store": False})
    assert (delivery.stream, delivery.keep) == (ResponseStream, None)
    assert issubclass(ResponseStream, EventStream)
    with pytest.raises(NotFound):
        store.get(stores.database, store.Whose.of(ANN), ResponseId("resp_1"))


def compaction(stores: Held, owner: Key = ANN) -> dict[str, Any]:
    return {"type": "compaction", "encrypted_content": stores.seals.seal("Otto.", owner.name)}


@pytest.mark.parametrize("memory", [MEMORY, RECALLED, COMPACTED], ids=["response", "input_tokens", "compact"])
async def test_compactions_are_opened_for_the_model_and_stay_sealed_in_the_store(stores: Held, memory: Memory) -> None:
    given = BODY | {"input": [{"role": "user", "content": "hi"}, compaction(stores)]}
    shown: dict[str, Any] = {"type": "message", "role": "system", "content": TELLS + "Otto."}
    known = await memory.recall(stores, ANN, given, make_entry())
    assert known["input"] == [{"type": "message", "role": "user", "content": "hi"}, shown]
    await answered(stores, given)
    kept = store.get(stores.database, store.Whose.of(ANN), ResponseId("resp_1")).input
    assert kept[1]["encrypted_content"] == given["input"][1]["encrypted_content"]
    for key in (ANN, BOSS):  # an operator goes on from what is another key's
        later = await memory.recall(stores, key, BODY | {"previous_response_id": "resp_1"}, make_entry())
        items: Any = later["input"]
        assert (items[1], items[2]["content"]) == (shown, "more")


async def test_a_compaction_of_another_key_is_refused_even_to_an_admin(stores: Held) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await MEMORY.recall(stores, BOSS, BODY | {"input": [compaction(stores)]}, make_entry())
    assert refused.value.param == "input.0.encrypted_content"


async def test_a_secret_that_has_changed_is_told(stores: Held, tmp_path: Path) -> None:
    await answered(stores, BODY | {"input": [compaction(stores)]})
    stores.seals = Seals(tmp_path / "another.key")
    with pytest.raises(InvalidRequest, match="cannot be opened any more") as refused:
        await MEMORY.recall(stores, ANN, BODY | {"previous_response_id": "resp_1"}, make_entry())
    assert refused.value.param == "previous_response_id"


async def test_a_compaction_is_checked_as_its_route_checks(stores: Held) -> None:
    given = BODY | {"input": [compaction(stores)], "image": {"context_compression": "auto"}}
    assert await COMPACTED.recall(stores, ANN, given, make_entry())
    with pytest.raises(InvalidRequest) as refused:
        await MEMORY.recall(stores, ANN, given, make_entry())
    assert refused.value.param == "image"
