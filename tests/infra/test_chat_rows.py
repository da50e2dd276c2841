"""Stored chat completions, in a real database."""

from typing import Any

import pytest
from sqlmodel import select

from infra.chat_rows import ChatsWanted, NewChat, StoredChats, is_chat_id, new_chat_id
from infra.database import Database
from infra.errors import InvalidRequest, NotFound
from infra.tables import ChatLabelRow, ChatRow
from infra.types import ChatId, KeyName, ModelName
from tests.infra.databases import database, postgres_url

ANN, BOB = KeyName("ann"), KeyName("bob")
M = ModelName("m")


__all__ = ["database", "postgres_url"]


@pytest.fixture
def chats(database: Database) -> StoredChats:
    return StoredChats(database)


def put(chats: StoredChats, number: int, key: KeyName = ANN, model: ModelName = M, **labels: str) -> ChatId:
    """Store one whose id is its number."""
    chat = ChatId(f"chatcmpl-{number:028x}")
    completion: dict[str, Any] = {"id": chat, "object": "chat.completion", "choices": [{"index": 0}]}
    chats.keep(NewChat(chat, key, model, completion, [{"role": "user", "content": f"say {number}"}], labels))
    return chat


def numbers(chats: StoredChats, **wanted: Any) -> tuple[list[int], bool]:
    found, more = chats.page(ChatsWanted(**{"key": ANN} | wanted))
    return [int(str(each["id"]).removeprefix("chatcmpl-"), 16) for each in found], more


def labels_left(database: Database) -> int:
    with database.read() as session:
        return len(session.exec(select(ChatLabelRow)).all())


def test_an_id_is_new_and_in_the_order_of_its_age() -> None:
    made = [new_chat_id() for _ in range(3)]
    assert len(set(made)) == 3
    assert all(map(is_chat_id, made))
    assert made[0][:21] <= made[-1][:21]
    for absurd in ("", "chatcmpl-", "chatcmpl-123", f"{made[0]}\n", made[0].upper(), f"{made[0]}0", "x" * 10_000, "\0"):
        assert not is_chat_id(absurd)


def test_what_is_kept_is_found_by_its_key_and_by_an_admin(chats: StoredChats) -> None:
    chat = put(chats, 1, topic="snow")
    for key in (ANN, None):
        found = chats.get(chat, key)
        assert (found["id"], found["metadata"], found["object"]) == (chat, {"topic": "snow"}, "chat.completion")
        assert chats.messages(chat, key) == [{"role": "user", "content": "say 1"}]
    for stranger, asked in ((BOB, chat), (ANN, ChatId("chatcmpl-0")), (None, ChatId("chatcmpl-0"))):
        for attempt in (chats.get, chats.messages, chats.remove):
            with pytest.raises(NotFound) as refused:
                attempt(asked, stranger)
            assert refused.value.param == "completion_id"
        with pytest.raises(NotFound):
            chats.relabel(asked, stranger, {})
    assert chats.get(chat, ANN)["metadata"] == {"topic": "snow"}


def test_its_labels_are_changed_as_a_whole(database: Database, chats: StoredChats) -> None:
    chat = put(chats, 1, topic="snow", mood="calm")
    assert chats.relabel(chat, ANN, {"topic": "ice"})["metadata"] == {"topic": "ice"}
    assert chats.get(chat, ANN)["metadata"] == {"topic": "ice"}
    assert chats.relabel(chat, None, {"b": "2", "a": "1"})["metadata"] == {"a": "1", "b": "2"}
    assert chats.relabel(chat, ANN, {})["metadata"] == {}
    assert labels_left(database) == 0


def test_what_is_removed_is_gone_with_its_labels(database: Database, chats: StoredChats) -> None:
    chat = put(chats, 1, topic="snow")
    chats.remove(chat, ANN)
    with pytest.raises(NotFound):
        chats.get(chat, ANN)
    assert labels_left(database) == 0
    with pytest.raises(NotFound):
        chats.remove(chat, ANN)


def test_pages_in_both_orders(chats: StoredChats) -> None:
    ids = {number: put(chats, number) for number in (3, 1, 2, 4)}
    put(chats, 5, BOB)
    assert numbers(chats) == ([1, 2, 3, 4], False)
    assert numbers(chats, order="desc") == ([4, 3, 2, 1], False)
    assert numbers(chats, key=None) == ([1, 2, 3, 4, 5], False)
    assert numbers(chats, limit=3) == ([1, 2, 3], True)
    assert numbers(chats, limit=3, after=ids[3]) == ([4], False)
    assert numbers(chats, limit=2, order="desc", after=ids[4]) == ([3, 2], True)
    chats.remove(ids[2], ANN)
    assert numbers(chats, after=ids[2]) == ([3, 4], False), "who deletes while listing goes on all the same"


def test_a_page_of_large_ones_is_short(chats: StoredChats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.chat_rows.PAGE_BYTES", 300)  # each takes a hundred and some
    ids = [put(chats, number) for number in (1, 2, 3)]
    large = NewChat(new_chat_id(), ANN, M, {"id": f"chatcmpl-{4:028x}", "tools": ["x" * 400]}, [], {})
    chats.keep(large)
    assert numbers(chats) == ([1, 2], True)
    assert numbers(chats, after=ids[1]) == ([3], True)
    assert numbers(chats, after=ids[2]) == ([4], False)
    assert numbers(chats, order="desc") == ([4], True)


def test_a_list_of_those_that_have_all_labels(chats: StoredChats) -> None:
    put(chats, 1, topic="snow", mood="calm")
    put(chats, 2, topic="snow")
    put(chats, 3, topic="ice", mood="calm")
    put(chats, 4, model=ModelName("n"), topic="snow")
    put(chats, 5, BOB, topic="snow", mood="calm")
    assert numbers(chats, labels={"topic": "snow"}) == ([1, 2, 4], False)
    assert numbers(chats, labels={"topic": "snow"}, model="m") == ([1, 2], False)
    assert numbers(chats, labels={"topic": "snow", "mood": "calm"}) == ([1], False)
    assert numbers(chats, labels={"topic": "calm"}) == ([], False)
    assert numbers(chats, labels={"topic": "Snow"}) == ([], False)
    assert numbers(chats, labels={"topic": "snow"}, key=None, limit=2, order="desc") == ([5, 4], True)


def test_labels_of_any_characters(chats: StoredChats) -> None:
    odd = {'a"b': "'; drop table chat_label", "$.x[0]": "%", "": "", "k" * 64: "v" * 512, "ключ": "雪\n"}
    chat = put(chats, 1)
    assert chats.relabel(chat, ANN, odd)["metadata"] == odd
    assert all(numbers(chats, labels={name: value}) == ([1], False) for name, value in odd.items())
    assert numbers(chats, labels={"": "%"}) == ([], False)


def test_what_could_not_be_shown_is_not_kept(chats: StoredChats) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    new = NewChat(new_chat_id(), ANN, M, {"id": "x", "tools": deep}, [], {})
    with pytest.raises(InvalidRequest, match="nested too deeply to be stored") as refused:
        chats.keep(new)
    assert refused.value.param == "store"
    assert numbers(chats) == ([], False)


def test_what_it_takes_is_what_it_is_shown_as(database: Database, chats: StoredChats) -> None:
    new = NewChat(new_chat_id(), ANN, M, {"id": "x"}, [{"content": "y" * 1000}], {})
    chats.keep(new)
    with database.read() as session:
        size_bytes, completion_bytes = session.exec(select(ChatRow.size_bytes, ChatRow.completion_bytes)).one()
    assert 1000 < size_bytes < 1100
    assert 10 < completion_bytes < 30
